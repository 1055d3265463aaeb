"""What changed in a Delta table since one looked last, told file by file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import unquote

from lake.log import log_entry
from lake.remote import Location
from lake.snapshot import Snapshot


@dataclass(slots=True)
class Change:
    """Files that came, of ``size`` bytes in all, and went in one commit. ``same_rows``: the commit says that it only
    arranged rows anew.

    ``anew``: the files are the whole table, and nothing from before counts.
    """

    added: list[Location] = field(default_factory=list)
    removed: list[Location] = field(default_factory=list)
    size: int = 0
    same_rows: bool = False
    anew: bool = False

    @property
    def replaces(self) -> bool:
        """Whether files were replaced by others with other rows."""
        return bool(self.removed) and not self.same_rows

    @property
    def brings(self) -> bool:
        """Whether all that happened is that rows came."""
        return not (self.removed or self.same_rows or self.anew)


class Follower:
    """Follows one table of a lake; the first look finds the whole table, or what came since ``version``: −1 of a
    table that was not there yet."""

    def __init__(self, snapshot: Snapshot, version: int | None = None) -> None:
        self._snapshot = snapshot
        self._version = version
        #: Whether the last look left commits for the next one.
        self.more = False

    @property
    def version(self) -> int | None:
        """Up to which version of the table changes were told; None before the first look."""
        return self._version

    def files(self) -> list[Location]:
        """The files that hold the table as of :attr:`version`. Raises LakeError."""
        known = self._version
        return [] if known is None or known < 0 else self._snapshot.files_at(known)

    def forget(self) -> None:
        """Begin again with the whole table."""
        self._version = None

    def changes(self, most: float = math.inf) -> list[Change]:
        """The commits since the last look, oldest first; empty where nothing changed.

        Those that bring more than ``most`` bytes together are left for the next look, as far as the log's entries tell.
        """
        self.more = False
        if (following := self._following(most)) is not None:
            return following
        version, known = self._snapshot.version(), self._version
        if version == known:
            return []
        self._version = version
        if version < 0:
            return []  # there is no table yet
        if known is None or version < known:
            return [self._whole()]
        if known < 0:
            return [Change(self._snapshot.files(), size=self._snapshot.size)]
        try:
            return [self._commit(number) for number in range(known + 1, version + 1)]
        except (OSError, ValueError, KeyError):
            return [self._whole()]  # log entries that were cleaned up meanwhile

    def _following(self, most: float) -> list[Change] | None:
        """The commits after the one that was seen last, by the log's entries alone; None where they do not tell.

        To open the table again would cost the more the longer its log is.
        """
        path, known = self._snapshot.path, self._version
        if known is None or known < 0 or not log_entry(path, known).exists():
            return None
        found: list[Change] = []
        try:
            for change in self._commits(known + 1):
                most -= 0 if change.same_rows else change.size
                if found and most < 0:
                    self.more = True
                    break
                found.append(change)
        except (ValueError, KeyError):
            return None
        self._version = known + len(found)
        return found

    def _whole(self) -> Change:
        return Change(self._snapshot.files(), anew=True)

    def _commits(self, first: int) -> Iterator[Change]:
        """The commits from version ``first`` on, as far as the log has entries. Raises ValueError, KeyError."""
        with suppress(FileNotFoundError):
            for version in count(first):
                yield self._commit(version)

    def _commit(self, version: int) -> Change:
        change, data_changes = Change(), []
        for line in log_entry(self._snapshot.path, version).read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            for kind, files in (("add", change.added), ("remove", change.removed)):
                if kind in action:
                    files.append(self._snapshot.path / unquote(action[kind]["path"]))
                    data_changes.append(action[kind].get("dataChange", True))
            change.size += action.get("add", {}).get("size", 0)
        change.same_rows = bool(data_changes) and not any(data_changes)
        return change
