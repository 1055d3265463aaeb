"""Gold as the analytics write it: each micro-batch once, and the way to start over."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from lake.errors import UserError, first_line
from lake.finished import AGE_STATE, QUEUE_STATE, TENANT_STATE
from lake.remote import Location, Remote
from lake.staged import LaidDown, Staged
from lake.store import Lake, LakeError, explained
from lake.tables import GAPS, TABLES

GOLD_TABLES = ("partials", "marks")
#: What is worked out from these, and by itself whenever it is not there.
STATE_TABLES = (TENANT_STATE.name, QUEUE_STATE.name, AGE_STATE.name)
#: How to go on where gold and the notes of what was read into it do not belong together.
REBUILD = "compute gold anew from bronze: `sojourn analyze --rebuild`"


class Gold:
    """The gold tables, for one streaming query, which numbers its batches. Belongs to that query's thread."""

    def __init__(self, root: Path, query_id: str, tables: tuple[str, ...]) -> None:
        self._lake = Lake(root)
        self.query_id = query_id
        self._tables = tables

    def tail(self) -> Gold:
        """The same tables, for what is read on behind the query's batches (:mod:`spark_analytics.tail`).

        Its commits are numbered by the version of bronze that they reach.
        """
        tail = copy.copy(self)
        tail.query_id = f"{self.query_id}:tail"
        return tail

    def path(self, table: str) -> Location:
        """The folder of ``table``."""
        return self._lake.path(table)

    def holds(self, batch_id: int) -> bool:
        """Whether every table has this batch already, as after a crash between commit and checkpoint."""
        return not self.missing(batch_id)

    def begun(self, batch_id: int) -> bool:
        """Whether any table has this batch already."""
        return len(self.missing(batch_id)) < len(self._tables)

    def stage(self, batch_id: int) -> dict[str, Staged]:
        """A file for each table that does not have this batch yet, in their order."""
        return {table: self._lake.stage(table) for table in self.missing(batch_id)}

    def missing(self, batch_id: int) -> list[str]:
        """The tables that do not have this batch yet, in their order."""
        # Nobody else commits as this query.
        return [name for name in self._tables if not _reached(self._committed(name), batch_id)]

    def reached(self) -> list[int]:
        """The number of the last batch that each table has, in their order; −1 before the first."""
        return [-1 if (number := self._committed(name)) is None else number for name in self._tables]

    def _committed(self, table: str) -> int | None:
        return self._lake.committed(table, self.query_id, look=False)

    def add(self, batch_id: int, staged: Mapping[str, Staged | LaidDown]) -> None:
        """Add the batch to its tables, in their order."""
        for table, file in self._ended(staged).items():
            self._lake.add(table, file, app_id=self.query_id, version=batch_id)

    def _ended(self, staged: Mapping[str, Staged | LaidDown]) -> Mapping[str, Staged | LaidDown]:
        """``staged``; where that takes a request each, all files are ended at once. LakeError where one cannot be."""
        places = {table: place for table in staged if isinstance(place := self.path(table), Remote)}
        if len(places) < max(2, len(staged)):
            return staged
        with ThreadPoolExecutor(len(staged), thread_name_prefix="gold") as pool:
            ending = {table: pool.submit(file.finished) for table, file in staged.items()}
        try:
            return {table: LaidDown(places[table], adds.result()) for table, adds in ending.items()}
        except OSError as error:
            raise explained(error, next(iter(places.values())).parent) from error


def bytes_of(lake: Lake, table: str) -> int:
    """The bytes of the files that hold ``table``. Raises LakeError."""
    adds = pa.table(lake.ensure(table).get_add_actions(flatten=True))
    return sum(adds.column("size_bytes").to_pylist())


def checkpoint_path(root: Path, query: str) -> Path:
    """Where Spark keeps how far ``query`` has read."""
    return Lake(root).state_path("checkpoints", "analyze", query)


def check_checkpoint(lake: Lake, checkpoint: Path, tables: tuple[str, ...], *, required: bool) -> None:
    """UserError where checkpoint and gold do not belong together: going on would count twice, or leave a hole.

    ``required``: gold with rows implies this checkpoint.
    """
    metadata = checkpoint / "metadata"
    if not metadata.exists():
        filled = required and [table for table in GOLD_TABLES if lake.ensure(table).file_uris()]
        if filled:
            raise UserError(
                f"gold holds rows ({', '.join(filled)}), but the note of what was read into it, {checkpoint}, is gone",
                REBUILD,
            )
        return
    try:
        query_id = str(json.loads(metadata.read_text(encoding="utf-8"))["id"])
        finished = max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=-1)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the checkpoint {checkpoint} cannot be read: {error}", REBUILD) from error
    behind = [table for table in tables if not _reached(lake.committed(table, query_id), finished)]
    if behind:
        raise UserError(f"gold lacks batches that the checkpoint counts as written ({', '.join(behind)})", REBUILD)


def forget(root: Path) -> None:
    """Empty gold and drop the checkpoints, so that the next run computes all of it anew.

    A crash in between is safe: gold with rows but without a checkpoint is refused until this is done again.
    """
    lake = Lake(root)
    checkpoints = checkpoint_path(root, "events").parent
    dropped = checkpoints.with_name("dropped")
    shutil.rmtree(dropped, ignore_errors=True)
    if checkpoints.exists():
        checkpoints.rename(dropped)  # all at once: half a checkpoint would pass for a whole one
        shutil.rmtree(dropped, ignore_errors=True)
    for table in (*STATE_TABLES, *GOLD_TABLES, GAPS.name):
        delta = lake.ensure(table)
        try:
            write_deltalake(delta, TABLES[table].schema.empty_table(), mode="overwrite")
        except (DeltaError, OSError) as error:
            raise LakeError(f"table {table} cannot be emptied: {first_line(error)}") from error


def _reached(committed: int | None, batch_id: int) -> bool:
    return batch_id < 0 or (committed is not None and committed >= batch_id)
