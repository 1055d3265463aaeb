"""Whether so much is unread that the newest of it is to come first, and the gap which that leaves."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake.errors import UserError
from lake.remote import Location, open_parquet
from lake.store import Lake
from lake.tables import MESSAGE_EVENTS
from spark_analytics.catching_up.gaps import Gap, Gaps, Live, attempts_of
from spark_analytics.catching_up.log import DataFile, all_files, committed_at, data_files, newest_data
from spark_analytics.catching_up.places import Checkpoint, Offset, Place
from spark_analytics.gold import Gold

log = logging.getLogger(__name__)

#: So many gaps are open at once; what comes then is read in its order.
MOST_GAPS = 4
#: So many files are counted in advance; beyond, how much is unread is not told. A second's work.
MOST_COUNTED = 20_000


@dataclass(frozen=True, slots=True)
class _Batch:
    """``number`` of a query's batches: from ``begins`` (None: the whole table) to ``ends``, if that is decided."""

    query_id: str
    number: int
    begins: Place | None
    ends: Place | None = None


class _InOrderError(Exception):
    """Why no gap is opened, though much may be unread."""


def open_gap(lake: Lake, gaps: Gaps, writes: tuple[str, ...], most_bytes: int) -> Gap | None:
    """Put off what is unread of message_events, but for its newest commit, if that is more than ``most_bytes``.

    The gap is noted, and nothing else has changed. None: all is read in its order.
    """
    try:
        gap = _found(lake, gaps, writes, most_bytes)
    except (_InOrderError, UserError) as reason:
        log.info("what is unread is read in its order: %s", reason)
        return None
    if gap is not None:
        gaps.write(gap)
        log.info("%s unread: reading the newest first; %s follows", _size(gap), _since(lake, gap))
    return gap


def _found(lake: Lake, gaps: Gaps, writes: tuple[str, ...], most_bytes: int) -> Gap | None:
    live, table = gaps.live(), lake.ensure(MESSAGE_EVENTS.name)
    path, table_id = lake.path(MESSAGE_EVENTS.name), str(table.metadata().id)
    batch = _next_batch(lake, live, table_id, writes)
    starts = newest_data(path, table.version(), batch.begins.version + 1 if batch.begins else 1)
    if starts is None:
        return None
    whole, begins = batch.begins is None, batch.begins or Place(starts - 1)
    unread = _Unread([next(data_files(path, Place(starts), starts + 1))])
    for file in all_files(path, begins) if whole else data_files(path, begins, starts):
        if unread.files >= MOST_COUNTED and unread.size_bytes > most_bytes:
            unread.all_counted = False
            break
        unread.count(file)
    if unread.size_bytes <= most_bytes:
        return None
    if len(gaps.open()) >= MOST_GAPS:
        raise _InOrderError(f"{MOST_GAPS} stretches of history wait already")
    if batch.ends is not None and batch.ends > Place(starts):
        raise _InOrderError("the batch that was begun reaches the newest of it")
    if any(attempts_of(live.checkpoint).glob("[0-9]*.json")) or any(_unnumbered(file.path) for file in unread.samples):
        # They are numbered in the order of their arrival, which is not to change.
        raise _InOrderError("it has attempts that nobody numbered")
    return Gap(
        gap_id=batch.query_id,
        table_id=table_id,
        first_version=0 if whole else begins.version,
        starts=starts,
        whole=whole,
        size_bytes=unread.size_bytes if unread.all_counted else None,
        events=unread.events if unread.all_counted else None,
        attempts=attempts_of(live.checkpoint).name,
        number=batch.number,
        begins=begins,
        ends=batch.ends,
    )


@dataclass(slots=True)
class _Unread:
    """What there is to defer; ``samples``: files from here and there, the denser the earlier."""

    samples: list[DataFile]
    files: int = 0
    size_bytes: int = 0
    events: int = 0
    all_counted: bool = True

    def count(self, file: DataFile) -> None:
        if self.files & (self.files - 1) == 0:
            self.samples.append(file)
        self.files += 1
        self.size_bytes += file.size_bytes
        self.events += file.rows or 0


def _next_batch(lake: Lake, live: Live, table_id: str, writes: tuple[str, ...]) -> _Batch:
    """The batch that the live query would do next, if it went on."""
    checkpoint = Checkpoint(live.checkpoint)
    query_id, planned = checkpoint.query_id(), checkpoint.planned()
    start = None if live.starts is None else Place(live.starts)
    if query_id is None or not planned:
        return _Batch(query_id or str(uuid.uuid4()), 0, start)
    gold = Gold(lake.root, query_id, writes)
    last = planned[-1]
    ends = _end(checkpoint, last, table_id)
    behind = _read_on(gold)
    if gold.holds(last):  # whether Spark came to note it or not
        return _Batch(query_id, last + 1, max(ends.place, behind))
    if last > 0:
        begins = max(_end(checkpoint, last - 1, table_id).place, behind)
        if begins > ends.place:
            raise _InOrderError("more is read than the batch that was begun has")
        return _Batch(query_id, last, begins, ends.place)
    if start is not None:
        return _Batch(query_id, 0, start, ends.place)
    if gold.begun(0):
        raise _InOrderError("its first batch is half done")
    return _Batch(query_id, 0, None)


def _read_on(gold: Gold) -> Place:
    """Where a query has come to that read on behind its batches."""
    reached = set(gold.tail().reached())
    if len(reached) > 1:
        raise _InOrderError("what was read behind its last batch is half done")
    return Place(max(reached) + 1)


def _end(checkpoint: Checkpoint, batch: int, table_id: str) -> Offset:
    offset = checkpoint.offset(batch, table_id)
    if offset is None:
        raise _InOrderError("the checkpoint is of another table")
    if offset.begins:
        raise _InOrderError("what was there at the first start is not read yet")
    return offset


def _unnumbered(path: Location) -> bool:
    """Whether the file begins with receipts of which nobody says the how many-th they are."""
    try:
        with open_parquet(path) as file:
            rows = file.read_row_group(0, columns=["event_type", "attempt"])
    except (OSError, pa.ArrowException) as error:
        raise _InOrderError(f"{path} cannot be read: {error}") from error
    receipts = pc.equal(rows.column("event_type"), "received")
    return bool(pc.any(pc.and_(receipts, pc.is_null(rows.column("attempt")))).as_py())


def _since(lake: Lake, gap: Gap) -> str:
    if gap.whole:
        return "all of history"
    return f"history since {committed_at(lake.path(MESSAGE_EVENTS.name), gap.first_version):%Y-%m-%d %H:%M} UTC"


def _size(gap: Gap) -> str:
    if gap.size_bytes is None:
        return f"more than {MOST_COUNTED:,} files of events"
    return f"{gap.size_bytes / 2**30:.2f} GiB of events, {gap.events:,},"
