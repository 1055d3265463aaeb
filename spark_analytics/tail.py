"""What comes behind a batch while Spark has it open is brought into gold at once, without a batch for it.

Planning a batch costs Spark 60 ms of processor and as long by the clock, however few rows are in it. So a batch stays
open for a while, as in Spark's real-time mode, and the commits behind it are read by the table's log. Gold tells how
far that came, by the version of bronze in the same commits as the rows: Spark's next batch has those files, too, and
leaves them out; a batch that is done again after a crash goes on where gold ends (docs/adr/0022).
"""

from __future__ import annotations

import time
from pathlib import Path

from lake.errors import UserError
from lake.remote import Location
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import Files
from spark_analytics.catching_up.log import DataFile, data_files, only_adds
from spark_analytics.catching_up.places import Checkpoint, Place

#: For so long (seconds) a batch stays open: what Spark plans next begins where it ended, and reads the log from there.
OPEN_SECONDS = 60.0
#: More bytes, or more commits, that wait are for a batch of Spark's.
MOST_BYTES, MOST_COMMITS = 16 << 20, 256


class Tail:
    """Reads on in ``table`` behind the open batch of the query with ``checkpoint``. Belongs to that query's thread.

    ``log``: where the table's log is read, ``table_id``: what the checkpoint calls it.
    """

    def __init__(self, engine: Engine, table: Location, log: Location, checkpoint: Path, table_id: str) -> None:
        self._engine = engine
        self._gold = engine.gold.tail()
        self._table = table
        self._log = log
        self._checkpoint = Checkpoint(checkpoint)
        self._table_id = table_id
        self._batch = -1
        self._next = 0
        self._until = 0.0

    def taken(self, batch_id: int) -> frozenset[str]:
        """The names of those files of ``batch_id`` that were read on to behind the batch before it.

        Raises UserError where the checkpoint or the log cannot be read.
        """
        begins, reached = self._end(batch_id - 1), max(self._gold.reached())
        if begins is None or reached < begins:
            return frozenset()
        return frozenset(file.path.name for file in self._files(begins, reached))

    def begin(self, batch_id: int) -> int | None:
        """``batch_id`` is in gold: the first version that is not; None where only Spark knows what comes next.

        What a crash left half done behind it is done first: the same commits, for the tables that lack them.
        """
        begins = self._end(batch_id)
        if begins is None:
            return None
        reached = self._gold.reached()
        least, most = min(reached), max(reached)
        self._engine.forget(batch_id, beyond=least)
        self._batch, self._next, self._until = batch_id, max(begins, least + 1), time.monotonic() + OPEN_SECONDS
        if least < most:
            self._bring(most, self._files(self._next, most))
        return self._next

    @property
    def next(self) -> int:
        """The first version that is not in gold."""
        return self._next

    def read_on(self, newest: int) -> int | None:
        """Bring what came up to version ``newest`` into gold; the records in it. None: it is for Spark's next batch."""
        if (
            time.monotonic() >= self._until
            or newest - self._next >= MOST_COMMITS
            or not only_adds(self._log, self._next, newest)
        ):
            return None
        try:
            files = self._files(self._next, newest)
        except UserError:  # Spark says what is wrong
            return None
        if sum(file.size_bytes for file in files) > MOST_BYTES:
            return None
        return self._bring(newest, files)

    def _bring(self, newest: int, files: list[DataFile]) -> int:
        size = sum(file.size_bytes for file in files)
        found = Files.of([file.path for file in files], size, self._table)
        count = self._engine.read_on(self._gold, self._batch, newest, found)
        self._next = newest + 1
        return count

    def _files(self, first: int, last: int) -> list[DataFile]:
        return list(data_files(self._table, Place(first), last + 1, self._log))

    def _end(self, batch_id: int) -> int | None:
        """The version behind ``batch_id``; None where it ended within one, or in the table as it was at first."""
        offset = self._checkpoint.offset(batch_id, self._table_id) if batch_id >= 0 else None
        if offset is None or offset.begins or offset.place.index >= 0:
            return None
        return offset.place.version
