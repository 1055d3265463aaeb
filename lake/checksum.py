"""Version checksum files, which spare Spark a query for each commit that it follows as a stream.

At every new version Spark asks for the table's metadata and protocol. Without a checksum file beside the commit it
finds them by a Spark job over the log: a third of a micro-batch. deltalake does not write these files, so we do.

Source: Delta transaction log protocol, "Version Checksum File".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from lake.files import write_atomically
from lake.remote import Location, Remote

log = logging.getLogger(__name__)

#: Checksums of versions before the newest this many are removed: only the newest is ever asked for.
KEPT = 20


class Checksums:
    """Follows one table's log, counting its files and bytes, and writes the checksum of the newest version.

    A log that cannot be followed (its early commits were cleaned up, or another writer uses features that we do not)
    gets no more checksums: Spark then works as it would without.
    """

    def __init__(self, table: Location) -> None:
        self._log = table / "_delta_log"
        self._state: dict[str, Any] | None = None
        self._version = -1
        self._oldest = 0
        self._follows = True

    def write(self, version: int, entry: str = "") -> None:
        """Write the checksum of ``version``, the newest, whose ``entry`` in the log need not be read if it is given."""
        if not self._follows or version <= self._version:
            return
        known = {version: entry} if entry else {}
        try:
            try:
                self._follow(version, known)
            except FileNotFoundError:
                # The log was cleaned up while this process wrote nothing: another's checksum tells how it stands.
                self._begin(version)
                self._follow(version, known)
            path, text = self._path(version), json.dumps(self._state)
            if isinstance(path, Remote):
                path.write_text(text)
            else:
                write_atomically(path, text, lasting=False)  # the commit itself is not, either
            self._forget(version)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._follows = False
            log.debug("no checksums for %s from here on: %s", self._log.parent, error)

    def _forget(self, version: int) -> None:
        """Remove checksums that are too old: one at a time, or in a store many at once, which is one request."""
        path = self._path(version - KEPT)
        if not isinstance(path, Remote) or path.store.creator is None:
            path.unlink(missing_ok=True)
        elif version - KEPT - self._oldest >= KEPT:
            gone = range(self._oldest, version - KEPT)
            path.store.creator.remove([f"{path.parent.key}/{old:020d}.crc" for old in gone])
            self._oldest = version - KEPT

    def _follow(self, version: int, known: Mapping[int, str]) -> None:
        if self._state is None:
            self._begin(version)
        for number in range(self._version + 1, version + 1):
            self._take(known.get(number) or (self._log / f"{number:020d}.json").read_text(encoding="utf-8"))
            self._version = number

    def _begin(self, version: int) -> None:
        """Start from the newest checksum that is there, else from the table's first commit."""
        self._state, self._version = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}, -1
        known = sorted(int(path.stem) for path in self._log.glob("*.crc") if path.stem.isdigit())
        usable = [number for number in known if number <= version]
        for number in reversed(usable):
            if state := self._told(number):
                self._state, self._version = state, number
                break
        for number in usable[:-KEPT]:
            self._path(number).unlink(missing_ok=True)
        self._oldest = min(usable[-KEPT:], default=version)

    def _told(self, version: int) -> dict[str, Any] | None:
        """What the checksum of ``version`` says; None of one that the machine's crash has cut off."""
        try:
            told: dict[str, Any] = json.loads(self._path(version).read_text(encoding="utf-8"))
        except ValueError:
            return None
        return told

    def _take(self, entry: str) -> None:
        assert self._state is not None
        for line in entry.splitlines():
            action = json.loads(line)
            if add := action.get("add"):
                self._count(1, add)
            elif remove := action.get("remove"):
                self._count(-1, remove)
            elif "metaData" in action:
                self._state["metadata"] = action["metaData"]
            elif "protocol" in action:
                self._state["protocol"] = action["protocol"]
            elif "domainMetadata" in action:
                raise ValueError("a table with domain metadata")

    def _count(self, files: int, action: dict[str, Any]) -> None:
        assert self._state is not None
        if action.get("deletionVector"):
            raise ValueError("a table with deletion vectors")
        self._state["numFiles"] += files
        self._state["tableSizeBytes"] += files * int(action["size"])

    def _path(self, version: int) -> Location:
        return checksum(self._log.parent, version)


def checksum(table: Location, version: int) -> Location:
    """Where the checksum of ``version`` of ``table`` is, if it has one."""
    return table / "_delta_log" / f"{version:020d}.crc"
