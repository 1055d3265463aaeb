"""Lifecycle events from JSONL and Parquet files into the lake: post-mortems, migrations, tests.

A replay may be killed at any instant and repeated: what bronze already holds is recognised by its ``event_id``, what
was already rejected by its place in the file. Memory is bounded, whatever the size of the files and of the lake.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from collectors.ahead import reason
from collectors.isolate import append_sifted
from collectors.validate import (
    FIELDS,
    RAW_LIMIT,
    REQUIRED,
    Event,
    clean_rows,
    clipped,
    default_event_id,
    explain,
    legible_rows,
    to_arrow,
)
from lake.clock import TOLERANCE
from lake.dataset import dataset
from lake.errors import UserError
from lake.files import only_one
from lake.store import Lake

JSONL_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet", ".pq")

BATCH_ROWS = 50_000
BATCH_BYTES = 64 * 1024 * 1024
#: A longer line is no event; it is rejected without being held in memory.
LINE_LIMIT = 1024 * 1024
#: This many rejected records of one reason and file are kept one by one; of the others the number is kept.
EXAMPLES = 100
#: So many first lines without one JSON object mean that the file is something else.
SNIFFED_LINES = 20
#: Columns of bronze that follow from others: a file may have them, and nothing is lost by leaving them out.
DERIVED = frozenset({"ingest_date"})
_MEMORY = "256MB"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay has come: the file it is at, and the share of all files' bytes, 0 to 1."""

    path: Path
    share: float
    read: int
    written: int
    duplicates: int
    rejected: int

    def __str__(self) -> str:
        return f"{self.share:.0%}, {self.path.name}: {self.read:,} records read, {self.written:,} written"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay did: ``read = written + duplicates + rejected``. ``ignored`` names fields that are no columns."""

    read: int
    written: int
    duplicates: int
    rejected: int
    seconds: float
    ignored: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.read:,} records read in {self.seconds:.1f} s: {self.written:,} written"
        if self.duplicates:
            text += f", {self.duplicates:,} already there"
        if self.rejected:
            text += f", {self.rejected:,} rejected (see the table rejected_records)"
        if self.ignored:
            text += f"; fields that are no columns were ignored: {', '.join(self.ignored)}"
        return text


@dataclass(frozen=True, slots=True)
class _Reject:
    row: int
    reason: str
    raw: str


@dataclass(slots=True)
class _Batch:
    """Some consecutive rows of one file: the events among them, the others, the last one's number, and the byte the
    reader has come to."""

    events: pa.Table
    rows: int
    offset: int
    last: int = 0
    rejects: list[_Reject] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)


def replay(
    paths: Sequence[Path],
    lake_root: Path,
    *,
    progress: Callable[[Progress], None] | None = None,
    now: Callable[[], datetime] | None = None,
) -> ReplayReport:
    """Append the message events in ``paths`` to the lake, each ``event_id`` once; keep what is not an event apart.

    Raises UserError before anything is written where a file is missing, empty or of another kind.
    """
    begun = time.monotonic()
    clock = now or (lambda: datetime.now(UTC))
    files = [_checked(Path(path)) for path in paths]
    if not files:
        raise UserError("no file to replay", "name at least one .jsonl or .parquet file")
    sizes = [path.stat().st_size for path in files]
    lake = Lake(lake_root)
    lake.create()
    done: Counter[str] = Counter()
    ignored: set[str] = set()
    with only_one(lake.state_path("replay.lock"), "a replay into this lake"), _seen(lake) as seen:
        for number, path in enumerate(files):
            rejected = _Rejected(lake, path)
            for batch in _batches(path, lambda: clock() + TOLERANCE):
                moment = clock()
                fresh = seen.fresh(_completed(batch.events, f"replay:{path.name}", moment))
                # Events first: a crash in between repeats them as duplicates, and the rejects are still to come.
                unwritten = append_sifted(lake, "message_events", fresh)
                # Which row of the file it was nobody knows any more: it counts with the last one of its batch.
                batch.rejects += [
                    _Reject(batch.last, one.reason, one.raw) for one in unwritten for _ in range(one.times)
                ]
                rejected.keep(batch.rejects, moment)
                ignored |= batch.ignored
                done["read"] += batch.rows
                done["written"] += fresh.num_rows - sum(one.times for one in unwritten)
                done["rejected"] += len(batch.rejects)
                done["duplicates"] += batch.events.num_rows - fresh.num_rows
                if progress is not None:
                    share = (sum(sizes[:number]) + batch.offset) / sum(sizes)
                    progress(Progress(path, share, done["read"], done["written"], done["duplicates"], done["rejected"]))
    return ReplayReport(
        done["read"],
        done["written"],
        done["duplicates"],
        done["rejected"],
        time.monotonic() - begun,
        tuple(sorted(ignored)),
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def _checked(path: Path) -> Path:
    """``path`` if it is a file that can hold events; UserError says why it is not."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise UserError(f"{path} is a folder", "name the .jsonl or .parquet files in it")
    if not path.exists():
        raise UserError(f"there is no file {path}", "check the name")
    if suffix not in JSONL_SUFFIXES + PARQUET_SUFFIXES:
        raise UserError(
            f"{path} is neither JSONL nor Parquet by its name",
            "replay reads files that end in .jsonl (one JSON object a line) or .parquet",
        )
    try:
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty", "name a file with message events")
        (_check_parquet if suffix in PARQUET_SUFFIXES else _check_jsonl)(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}", "check the file's permissions") from error
    return path


def _check_jsonl(path: Path) -> None:
    first: list[bytes] = []
    with path.open("rb") as file:
        for _row, line in _lines(file):
            first.append(line)
            if len(first) == SNIFFED_LINES:
                break
    if not first:
        raise UserError(f"{path} holds nothing but blank lines", "name a file with message events")
    if not any(_is_object(line) for line in first):
        array = first[0].startswith(b"[")
        raise UserError(
            f"{path} is {'a JSON array' if array else 'not JSON Lines'}", "write one JSON object a line, one per event"
        )


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _check_parquet(path: Path) -> None:
    try:
        with pq.ParquetFile(path) as file:
            names, rows = file.schema_arrow.names, file.metadata.num_rows
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a readable Parquet file", "check where it comes from") from error
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise UserError(f"{path} lacks the columns {', '.join(missing)}", "they are required of message events")
    if rows == 0:
        raise UserError(f"{path} holds no rows", "name a file with message events")


def _batches(path: Path, latest: Callable[[], datetime]) -> Iterator[_Batch]:
    """The file's rows; what claims to have occurred after the ``latest`` instant that can be is no event."""
    try:
        yield from (_parquet if path.suffix.lower() in PARQUET_SUFFIXES else _jsonl)(path, latest)
    except (OSError, pa.ArrowException) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} cannot be read to its end: {first_line}",
            "fix it and repeat the command: what is in the lake is not written twice",
        ) from error


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank with their numbers; one that is too long is cut, to one byte above the limit."""
    row = 0
    while line := file.readline(LINE_LIMIT + 1):
        row += 1
        rest = line
        while len(rest) > LINE_LIMIT and not rest.endswith(b"\n"):
            rest = file.readline(LINE_LIMIT + 1)
        if row == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if stripped := line.strip(b" \t\r\n"):
            yield row, stripped if len(line) <= LINE_LIMIT else line


def _judged(event: Event, latest: datetime) -> Event:
    if event.occurred_at > latest:
        raise ValueError(reason("occurred_at"))
    return event


def _jsonl(path: Path, latest: Callable[[], datetime]) -> Iterator[_Batch]:
    with path.open("rb") as file:
        events: list[Event] = []
        batch = _Batch(to_arrow([]), 0, 0)
        size = 0
        for row, line in _lines(file):
            batch.rows += 1
            size += len(line)
            try:
                if len(line) > LINE_LIMIT:
                    raise ValueError(f"longer than {LINE_LIMIT // 1024} KiB")
                event = _judged(Event.model_validate_json(line), latest())
                events.append(event)
                if event.model_extra and len(batch.ignored) < EXAMPLES:
                    batch.ignored |= event.model_extra.keys() - DERIVED
            except ValueError as error:
                batch.rejects.append(
                    _Reject(row, _why(error), clipped(line[: RAW_LIMIT + 4].decode("utf-8", "replace")))
                )
            if batch.rows == BATCH_ROWS or size >= BATCH_BYTES:
                batch.events, batch.offset, batch.last = to_arrow(events), file.tell(), row
                yield batch
                events, batch, size = [], _Batch(to_arrow([]), 0, 0), 0
        if batch.rows:
            batch.events, batch.offset, batch.last = to_arrow(events), file.tell(), row
            yield batch


def _why(error: ValueError) -> str:
    return explain(error) if isinstance(error, ValidationError) else str(error)


def _parquet(path: Path, latest: Callable[[], datetime]) -> Iterator[_Batch]:
    with pq.ParquetFile(path) as file:
        known = [name for name in file.schema_arrow.names if name in FIELDS]
        ignored = set(file.schema_arrow.names) - set(FIELDS) - DERIVED
        total, size, row = file.metadata.num_rows, path.stat().st_size, 0
        for piece in file.iter_batches(batch_size=BATCH_ROWS, columns=known):
            table = pa.Table.from_batches([piece])
            table, legible = legible_rows(table)
            clean, sure = clean_rows(table, latest(), legible)
            batch = _Batch(clean, table.num_rows, 0, ignored=ignored)
            doubtful = pc.indices_nonzero(pc.invert(sure)).to_pylist()
            judged = []
            for index, record in zip(doubtful, table.take(doubtful).to_pylist() if doubtful else [], strict=True):
                try:
                    if not legible[index].as_py():
                        raise ValueError("a text is not UTF-8")
                    read = Event.model_validate({k: v for k, v in record.items() if v is not None})
                    judged.append(_judged(read, latest()))
                except ValueError as error:
                    raw = json.dumps(record, default=str, ensure_ascii=False)
                    batch.rejects.append(_Reject(row + index + 1, _why(error), clipped(raw)))
            if judged:
                batch.events = pa.concat_tables([clean, to_arrow(judged)])
            row += table.num_rows
            batch.offset, batch.last = size * row // total, row
            yield batch


# -- writing ----------------------------------------------------------------------------------------------------------


def _completed(events: pa.Table, source: str, moment: datetime) -> pa.Table:
    """``events`` with what their file left out: ids, clock, source, time of ingestion."""
    defaults = {"clock": "producer", "source": source, "ingested_at": moment}
    for name, value in defaults.items():
        column = events.column(name)
        filled = pc.fill_null(column, pa.scalar(value, column.type))
        events = events.set_column(events.schema.get_field_index(name), name, filled)
    ids = events.column("event_id")
    if ids.null_count:
        without = events.filter(pc.is_null(ids))
        parts = [
            without.column(name).to_pylist()
            for name in ("broker", "queue", "subscriber", "message_id", "event_type", "attempt")
        ]
        micros = without.column("occurred_at").cast(pa.int64()).to_pylist()
        made = pa.array([default_event_id(*key) for key in zip(*parts, micros, strict=True)], pa.string())
        filled = pc.replace_with_mask(ids.combine_chunks(), pc.is_null(ids).combine_chunks(), made)
        events = events.set_column(events.schema.get_field_index("event_id"), "event_id", filled)
    return events.append_column("ingest_date", events.column("ingested_at").cast(pa.date32()))


class _Seen:
    """The ids of all events in bronze and of this run's, 16 bytes each, in a DuckDB file beside the lake."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._db = connection

    def load(self, ids: pa.RecordBatchReader) -> None:
        """Take in the ids of the events that bronze holds."""
        self._db.register("bronze", ids)
        self._db.execute("CREATE TABLE seen AS SELECT md5_number(event_id) AS id FROM bronze")
        self._db.unregister("bronze")

    def fresh(self, events: pa.Table) -> pa.Table:
        """The rows of ``events`` whose id was not seen before; of equal ones the first."""
        batch = pa.table({"event_id": events.column("event_id"), "row": pa.array(range(events.num_rows), pa.int64())})
        self._db.register("batch", batch)
        self._db.execute(
            "CREATE OR REPLACE TEMP TABLE fresh AS "
            "SELECT md5_number(event_id) AS id, min(row) AS row FROM batch GROUP BY id"
        )
        # An inner join, so that the small side, the batch, is hashed and the large one is only scanned.
        self._db.execute("DELETE FROM fresh WHERE row IN (SELECT fresh.row FROM seen JOIN fresh ON seen.id = fresh.id)")
        self._db.execute("INSERT INTO seen SELECT id FROM fresh")
        rows = self._db.execute("SELECT row FROM fresh ORDER BY row").fetchnumpy()["row"]
        self._db.unregister("batch")
        return events.take(pa.array(rows))


@contextmanager
def _seen(lake: Lake) -> Iterator[_Seen]:
    path = lake.state_path("replay", "seen.duckdb")
    _remove(path)  # left by a replay that was killed
    connection = duckdb.connect(str(path), config={"memory_limit": _MEMORY, "threads": 2})
    try:
        seen = _Seen(connection)
        bronze = dataset(lake.ensure("message_events"))
        seen.load(bronze.scanner(columns=["event_id"], batch_readahead=2, fragment_readahead=1).to_reader())
        yield seen
    finally:
        connection.close()
        _remove(path)


def _remove(path: Path) -> None:
    for each in path.parent.glob(path.name + "*"):
        if each.is_file():
            each.unlink()


class _Rejected:
    """Keeps one file's rejected records, each once however often the file is replayed.

    The number of the commit is the last row it covers; what identifies the file is its name and its first bytes, so
    that a file which has grown since continues where it stood.
    """

    def __init__(self, lake: Lake, path: Path) -> None:
        with path.open("rb") as file:
            head = hashlib.blake2b(file.readline(RAW_LIMIT), digest_size=16).hexdigest()
        self._lake = lake
        self._source = f"replay:{path.name}"
        self._app_id = f"{self._source}:{head}"
        self._covered = lake.committed("rejected_records", self._app_id) or 0
        self._kept: Counter[str] = Counter()

    def keep(self, rejects: list[_Reject], moment: datetime) -> None:
        """Append those of ``rejects`` that were not kept before."""
        rows: list[dict[str, object]] = []
        counted: dict[str, dict[str, object]] = {}
        for reject in rejects:
            if reject.row <= self._covered:
                continue
            self._kept[reject.reason] += 1
            if self._kept[reject.reason] > EXAMPLES and reject.reason in counted:
                row = counted[reject.reason]
                row["count"] = int(str(row["count"])) + 1
                continue
            row = {
                "received_at": moment,
                "source": self._source,
                "reason": reject.reason,
                "raw": reject.raw,
                "count": 1,
                "ingested_at": moment,
                "ingest_date": moment.date(),
            }
            rows.append(row)
            if self._kept[reject.reason] > EXAMPLES:
                counted[reject.reason] = row
        if rows:
            self._covered = rejects[-1].row
            table = pa.Table.from_pylist(rows)
            self._lake.append("rejected_records", table, app_id=self._app_id, version=self._covered)
