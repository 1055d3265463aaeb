"""Appending to a Delta table by log entries of our own, so that a small commit costs little.

deltalake reads the state of all of a table's files to add one to them: 20 to 50 ms of processor a commit, the more the
longer the log. An append depends on nothing that is there. All it takes is the next free version, whatever others
committed before, and the numbers of the applications that commit here.

Source: Delta transaction log protocol, "Delta Log Entries", "Add File", "Transaction Identifiers"; a version is taken
by a hard link, which fails where its entry is there already, as deltalake itself does on local disks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable
from deltalake.transaction import AddAction

from lake.log import log_entry
from lake.remote import Location

#: An appender that has not looked at the log for so long begins anew: entries are kept for a minute at least, and one
#: that was cleaned up must not be taken for one that is free.
TRUSTED_SECONDS = 20.0
#: The protocol of tables that we make: nothing in them asks more of who appends.
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_ENGINE = "sojourn"


class Appender:
    """Follows the log of one table from the version of ``table`` on, and appends to it. Belongs to one thread."""

    def __init__(self, table: DeltaTable, path: Location, looked: float | None = None) -> None:
        """``looked``: when ``table`` was asked for its newest version, by the monotonic clock, if not just now."""
        self._table = table
        self._path = path
        self._positions: dict[str, int | None] = {}
        protocol = table.protocol()
        self.version = table.version()
        #: Whether the table asks no more of its writers than is done here.
        self.fit = protocol.min_reader_version == 1 and protocol.min_writer_version <= 2
        #: The entry of the last commit.
        self.written = ""
        self._looked = time.monotonic() if looked is None else looked

    @property
    def current(self) -> bool:
        """Whether :meth:`follow` may still be trusted to find what others committed.

        Where the entry of the version that was seen last is gone, so may be those behind it.
        """
        return self._trusted and log_entry(self._path, self.version).exists()

    @property
    def _trusted(self) -> bool:
        return time.monotonic() - self._looked < TRUSTED_SECONDS

    def follow(self) -> None:
        """Take in what others committed. Raises OSError, and ValueError where an entry of the log is damaged."""
        looked = time.monotonic()
        while True:
            try:
                entry = log_entry(self._path, self.version + 1).read_text(encoding="utf-8")
            except FileNotFoundError:
                break
            for line in entry.splitlines():
                self._take(json.loads(line))
            self.version += 1
        self._looked = looked

    def position(self, app_id: str) -> int | None:
        """The number of the last commit that ``app_id`` made, as of :meth:`follow`; None if it made none."""
        if app_id not in self._positions:
            self._positions[app_id] = self._table.transaction_version(app_id)
        return self._positions[app_id]

    def reached(self, positions: Mapping[str, int]) -> bool:
        """Whether there are ``positions``, and all of them were committed before, as of :meth:`follow`."""
        return bool(positions) and all(_at_least(self.position(key), value) for key, value in positions.items())

    def commit(self, adds: Sequence[AddAction], positions: Mapping[str, int]) -> bool:
        """Add files in one commit that reaches ``positions``; False if they were reached before.

        Raises OSError where the disk does not take it, or cannot link files; then nothing was committed.
        """
        assert isinstance(self._path, Path)
        draft, entry = self._path / "_delta_log" / f"_commit_{uuid4()}.json.tmp", entry_of(adds, positions)
        try:
            draft.write_text(entry, encoding="utf-8")
            while True:
                self.follow()
                if self.reached(positions) or not self.fit:
                    return False
                try:
                    os.link(draft, log_entry(self._path, self.version + 1))
                except FileExistsError:
                    continue
                self._advance(entry, positions)
                return True
        finally:
            with suppress(OSError):  # whether the commit was made is known by then
                draft.unlink()

    def _advance(self, entry: str, positions: Mapping[str, int]) -> None:
        """The next version is ours."""
        self.version += 1
        self.written = entry
        self._positions |= positions

    def _take(self, action: dict[str, Any]) -> None:
        if told := action.get("txn"):
            self._positions[told["appId"]] = int(told["version"])
        elif told := action.get("protocol"):
            self.fit = {name: told.get(name) for name in _PROTOCOL} == _PROTOCOL


def entry_of(adds: Sequence[AddAction], positions: Mapping[str, int], mark: str | None = None) -> str:
    """The log's entry of a commit that adds files and reaches ``positions``; ``mark`` is in no other commit."""
    now = time.time_ns() // 1_000_000
    told = {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}, "engineInfo": _ENGINE}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {**told, "isBlindAppend": True, **({"txnId": mark} if mark else {})}},
        *({"txn": {"appId": key, "version": value, "lastUpdated": now}} for key, value in positions.items()),
        *({"add": _add(one)} for one in adds),
    ]
    return "\n".join(map(json.dumps, actions))


def _add(one: AddAction) -> dict[str, Any]:
    return {
        "path": one.path,
        "partitionValues": dict(one.partition_values),
        "size": one.size,
        "modificationTime": one.modification_time,
        "dataChange": one.data_change,
        "stats": one.stats,
    }


def _at_least(done: int | None, wanted: int) -> bool:
    return done is not None and done >= wanted
