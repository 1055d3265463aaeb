"""The versions of a lake's tables, for who has to know whether anything is new and no more."""

from __future__ import annotations

import threading
from pathlib import Path

from lake.log import newest_from
from lake.snapshot import Snapshot
from lake.store import LakeError
from lake.tables import TABLES

#: The version of a table whose log cannot be read: whoever asks for its rows is told why.
UNREADABLE = -2


class Versions:
    """Safe to share between threads, and never kept waiting by somebody's question, as a reader is."""

    def __init__(self, root: Path) -> None:
        self._snapshots = {name: Snapshot(spec, root, hold=False) for name, spec in TABLES.items()}
        self._known: dict[str, int] = {}
        self._lock = threading.Lock()

    def token(self) -> tuple[int, ...]:
        """The version of each table, −1 before there is one, UNREADABLE of a broken one: equal tokens, same answers."""
        with self._lock:
            return tuple(self._version(name) for name in self._snapshots)

    def _version(self, name: str) -> int:
        snapshot = self._snapshots[name]
        known = newest_from(snapshot.path, self._known.get(name, -1))
        if known is None:
            try:
                known = snapshot.version()
            except LakeError:
                known = UNREADABLE
        self._known[name] = known
        return self._known[name]
