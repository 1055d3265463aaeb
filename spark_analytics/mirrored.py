"""The log of a table in an object store, mirrored on this machine for Spark's streaming source.

For each micro-batch Spark lists the log it follows and reads each new entry about four times, by a HEAD and a GET, one
after the other. Where it is asked for no rows, it needs the log and nothing else: here each entry is fetched once, when
it comes, and Spark asks this machine's disk. The mirror is a cache, recreated at each start.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lake.checksum import Checksums
from lake.creating import Creator
from lake.files import private_folder, write_atomically
from lake.log import log_entry
from lake.remote import Remote

log = logging.getLogger(__name__)

#: How often (seconds) the log is listed, to let go of what was cleaned up there and to take new checkpoints.
LISTED_SECONDS = 30.0
#: So many files are fetched at once.
AT_ONCE = 16
#: How long (seconds) the newest entries are taken at a time.
FOLLOWED_SECONDS = 0.5
#: A log with a gap is listed so often until it is believed to have one.
MOST_LISTINGS = 3
_ENTRY, _CHECKPOINT, _CHECKSUM = ".json", ".checkpoint.parquet", ".crc"
_LAST = "_last_checkpoint"


class MirroredLog:
    """Below ``folder`` the log of the table at ``table``, without its data. Belongs to one thread.

    Methods raise OSError where the store does not answer.
    """

    def __init__(self, table: Remote, creator: Creator, folder: Path) -> None:
        self.table = table
        self.folder = folder
        self._creator = creator
        self._log = folder / "_delta_log"
        self._checksums = Checksums(folder)
        self._newest = -1
        self._listed_at = 0.0

    def begin(self, since: int | None) -> None:
        """Make the mirror anew, of all that tells of the versions from ``since`` on; None: of the newest."""
        self.close()
        private_folder(self.folder)
        self._log.mkdir()
        self._checksums = Checksums(self.folder)
        there = self._listed()
        checkpoints = [number for number in _numbers(there, _CHECKPOINT) if since is None or number <= since]
        begins = max(checkpoints, default=0)
        entries = [number for number in _numbers(there, _ENTRY) if number >= begins]
        self._newest = max(entries, default=-1)
        checksums = [number for number in _numbers(there, _CHECKSUM) if number <= self._newest]
        self._take(
            [f"{number:020d}{_ENTRY}" for number in entries]
            + [f"{number:020d}{_CHECKPOINT}" for number in _numbers(there, _CHECKPOINT) if number >= begins]
            + [f"{number:020d}{_CHECKSUM}" for number in checksums[-1:]]
        )
        self._point_at_checkpoint(there)
        self._checksums.write(self._newest)

    def follow(self) -> None:
        """Take the entries that have come since: the more at once the more there are, and for a while at most, so that
        whoever waits for them has some even where they come as fast as they are fetched."""
        began, count = time.monotonic(), 1
        while time.monotonic() - began < FOLLOWED_SECONDS and self._take_next(count):
            count = min(2 * count, AT_ONCE)
        if time.monotonic() - self._listed_at > LISTED_SECONDS:
            self._clean_up()

    def _take_next(self, count: int) -> bool:
        """Take as many entries, if there are; whether there were."""
        names = [log_entry(self.folder, self._newest + 1 + place).name for place in range(count)]
        for name, entry in zip(names, self._all_fetched(names), strict=True):
            if entry is None:
                return False
            self._newest += 1
            # Before the entry: Spark plans a query where it finds an entry without.
            self._checksums.write(self._newest, entry.decode())
            self._put(name, entry)
        return True

    def close(self) -> None:
        """Remove the mirror."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _clean_up(self) -> None:
        """Remove what the store's log has no more, oldest first; take checkpoints, and what is behind a gap in it."""
        there = self._listed()
        here = {path.name for path in self._log.iterdir()}
        for name in sorted(here - there):
            if name.endswith((_ENTRY, _CHECKPOINT)) and _number(name) < self._newest:
                (self._log / name).unlink(missing_ok=True)
        oldest = min(_numbers(here & there, _ENTRY), default=0)
        missing = [name for name in there - here if name.endswith((_ENTRY, _CHECKPOINT)) and _number(name) >= oldest]
        self._take(sorted(missing))
        self._newest = max(self._newest, *_numbers(missing, _ENTRY), -1)
        self._checksums.write(self._newest)
        self._point_at_checkpoint(there)

    def _listed(self) -> set[str]:
        """The names in the store's log. It is listed page by page: a commit in between may lack the one before it."""
        for _ in range(MOST_LISTINGS):
            self._listed_at = time.monotonic()
            names = {file.name for file in (self.table / "_delta_log").iterdir()}
            entries = _numbers(names, _ENTRY)
            if not entries or len(entries) == entries[-1] - entries[0] + 1:
                break
        return {name for name in names if name == _LAST or name[:20].isdigit()}

    def _take(self, names: list[str]) -> None:
        for name, content in zip(names, self._all_fetched(names), strict=True):
            if content is not None:  # else it was cleaned up meanwhile
                self._put(name, content)

    def _all_fetched(self, names: list[str]) -> Iterable[bytes | None]:
        if len(names) == 1:
            return [self._fetched(names[0])]
        with ThreadPoolExecutor(min(len(names), AT_ONCE) or 1, thread_name_prefix="mirror") as pool:
            return list(pool.map(self._fetched, names))

    def _point_at_checkpoint(self, there: Iterable[str]) -> None:
        """Say which checkpoint is the newest, once it is here."""
        told = self._fetched(_LAST) if _LAST in there else None
        if told is None:
            return
        try:
            number = int(json.loads(told)["version"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s of %s is damaged: %s", _LAST, self.table, error)
            return
        if (self._log / f"{number:020d}{_CHECKPOINT}").exists():
            write_atomically(self._log / _LAST, told.decode())

    def _fetched(self, name: str) -> bytes | None:
        try:
            return self._creator.get((self.table / "_delta_log" / name).key)
        except FileNotFoundError:
            return None

    def _put(self, name: str, content: bytes) -> None:
        draft = self._log / f".{name}"
        draft.write_bytes(content)
        draft.replace(self._log / name)


def _numbers(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(_number(name) for name in names if name[20:] == suffix)


def _number(name: str) -> int:
    return int(name[:20])
