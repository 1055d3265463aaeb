"""A log committed to a lake piece by piece, beside what the reference makes of all that is committed by then."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lake.reader import Reader
from lake.store import Lake
from lake.tables import MARKS, PARTIALS
from spark_analytics.transforms.rollup import rolled_up
from tests.reference.compare import differences, expected_rows
from tests.reference.generate import Row
from tests.reference.lives import without_duplicates
from tests.reference.partials import add_samples, marks_of, partials_of
from tests.reference.reference import Reference

PRESENT = ("tenant_backlog_now", "concurrency_now", "queue_health_now", "attempt_age_now")
HISTORY = ("tenant_backlog", "concurrency", "queue_health")
#: What looks back on every instant of history: of minutes and hours that are folded anew, their ends.
LOOK_BACK = frozenset({"mode_since", "noisy", "noisy_tenants", "quiet_oldest_age_seconds"})
#: What goes on changing while nothing of the key does: a row has it as it was at its own data time.
AGING = {
    "tenant_backlog_now": {"as_of", "oldest_age_seconds", "share", "coverage", "reconciled_backlog", "arrival_rate",
                           "completion_rate", "drain_eta_seconds"},
    "concurrency_now": {"as_of", "start_rate", "littles_law", "saturation"},
    "queue_health_now": {"as_of", "oldest_age_seconds", "quiet_oldest_age_seconds", "staleness_seconds"},
    "attempt_age_now": set(),
}  # fmt: skip
TABLE_OF = {
    "tenant_backlog_now": "tenant_state",
    "concurrency_now": "tenant_state",
    "queue_health_now": "queue_state",
    "attempt_age_now": "attempt_age",
}
NAMES = ("broker", "queue", "subscriber", "tenant", "kind")


class Committed:
    """What has been committed to the lake at ``root``: of each event, of each sample, once."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake(root)
        self.lake.create()
        self.events: list[Row] = []
        self.samples: list[Row] = []
        self._reference: Reference | None = None

    def append(self, events: list[Row], samples: list[Row] | None = None) -> None:
        """Commit ``events`` as a batch of the analysis does, and ``samples`` as a collector."""
        if events:
            append(self.lake, events, samples or [])
        elif samples:
            add_samples(self.lake, samples)
        self.events += events
        self.samples += samples or []
        self._reference = None

    @property
    def reference(self) -> Reference:
        """What all of it comes to, second by second."""
        self._reference = self._reference or Reference(self.events, self.samples)
        return self._reference

    def compare(
        self, reader: Reader, *, without: Collection[str] = (), anew: Reference | None = None, ages: bool = True
    ) -> None:
        """The present is what the reference counts, as ``reader`` has it and as anybody reads the tables.

        Columns ``without`` which, and without ``ages`` or not; ``anew``: of partials that were rolled up, folded anew.
        """
        reference = anew or self.reference
        tables = tables_of(self.lake.root)
        for view in PRESENT if ages and anew is None else PRESENT[:-1]:
            rows = reader.query(f"SELECT * FROM {view}").to_pylist()
            wrong = differences(_left(expected_rows(reference, view), without), _left(rows, without))
            assert wrong == [], (view, wrong[:5])
            columns = [name for name in rows[0] if name not in AGING[view]] if rows else []
            wanted = [{name: row[name] for name in columns} for row in rows]
            for row in wanted if "histogram" in columns else ():
                row["histogram"] = {cell["index"]: cell["count"] for cell in row["histogram"]}
            assert not rows or differences(wanted, plain(tables, view, columns)) == [], view
        newest = "SELECT broker, as_of, sampled_at FROM stage_newest"  # intervals: of readings of one instant, any
        told = {row["broker"]: row for row in reader.query(newest).to_pylist()}
        assert told == newest_of(self.events, self.samples)

    def compare_history(self, reader: Reader, anew: Reference | None = None) -> None:
        """So is every row of history."""
        tables = tables_of(self.lake.root)
        for view in HISTORY:
            wanted = expected_rows(anew or self.reference, view)
            assert wanted and differences(wanted, reader.query(f"SELECT * FROM {view}").to_pylist()) == [], view
            assert differences(wanted, plain_history(tables, f"{view}_now", list(wanted[0]))) == [], view

    def rolled(self) -> Reference:
        """What the reference makes of it where partials were rolled up and are folded anew."""
        return Reference(self.events, self.samples, rolled=levels(self.lake))


def _left(rows: list[Row], without: Collection[str]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in without} for row in rows]


def newest_of(events: list[Row], samples: list[Row]) -> dict[str, Row]:
    """Of each broker its newest event, and its newest sample that is a reading."""
    told: dict[str, Row] = {}
    for rows, time, name in ((events, "occurred_at", "as_of"), (samples, "sampled_at", "sampled_at")):
        for row in rows:
            blank = {"broker": row["broker"], "as_of": None, "sampled_at": None}
            mine = told.setdefault(row["broker"], blank)
            if row.get("publishes") is not None:
                continue
            if row.get("estimated") is None:
                mine[name] = max(row[time], mine[name] or row[time])
    return told


def levels(lake: Lake) -> dict[str, tuple[int, int]]:
    """Of each broker until which second partials are told by the minute or longer, and by the hour."""
    until: dict[str, tuple[int, int]] = {}
    for row in lake.read("partials", columns=["broker", "bucket_start", "bucket_seconds"]).to_pylist():
        last = int(row["bucket_start"].timestamp()) + row["bucket_seconds"] - 1
        minutes, hours = until.get(row["broker"], (-1, -1))
        width = row["bucket_seconds"]
        until[row["broker"]] = max(minutes, last if width >= 60 else -1), max(hours, last if width >= 3600 else -1)
    return until


#: Anybody's, for whom a new one each time would be a tenth of what comparing costs.
anybody = cache(duckdb.connect)


def tables_of(root: Path) -> dict[str, pa.Table]:
    """Finished state, as anybody reads Delta tables who has none of our code."""
    return {name: DeltaTable(str(root / "gold" / name)).to_pyarrow_table() for name in {*TABLE_OF.values()}}


def plain(tables: Mapping[str, pa.Table], view: str, columns: list[str]) -> list[Row]:
    """The newest row of each key."""
    table = tables[TABLE_OF[view]]
    names = [name for name in NAMES if name in table.column_names]
    by = ", ".join(names)
    ages = view == "attempt_age_now"
    newest_first = "revision DESC, second DESC" if ages else "as_of DESC, second DESC, revision DESC"
    newest = (
        f"SELECT {', '.join(columns)} FROM rows WHERE epoch = (SELECT MAX(epoch) FROM rows) "
        f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {newest_first}) = 1"
    )
    rows: list[Row] = anybody().register("rows", table).sql(newest).to_arrow_table().to_pylist()
    return [row for row in rows if not ages or row["count"]]


def plain_history(tables: Mapping[str, pa.Table], view: str, columns: list[str]) -> list[Row]:
    """Every row of history: an epoch supersedes the others from its first second on, a correction what was told of its
    queue."""
    table = tables[TABLE_OF[view]]
    by = ", ".join(name for name in NAMES if name in table.column_names)
    rows = f"""
    WITH begins AS (
      SELECT broker, epoch, MIN(second) AS first FROM queues WHERE corrects IS NULL GROUP BY broker, epoch
    ),
    ends AS (
      SELECT broker, epoch, MIN(first) OVER (
        PARTITION BY broker ORDER BY epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
      ) AS superseded_from
      FROM begins
    )
    SELECT {", ".join(columns)} FROM (
      SELECT * FROM rows JOIN ends USING (broker, epoch)
    WHERE (superseded_from IS NULL OR second < superseded_from) AND NOT EXISTS (
      SELECT 1 FROM queues AS later
      WHERE later.broker = rows.broker AND later.queue = rows.queue
        AND later.revision > rows.revision AND later.corrects <= rows.second
    )
    QUALIFY ROW_NUMBER() OVER (PARTITION BY {by}, second ORDER BY epoch DESC, revision DESC) = 1
    ) WHERE happened
    """
    connection = anybody().register("rows", table).register("queues", tables["queue_state"])
    return connection.sql(rows).to_arrow_table().to_pylist()


def served(reader: Reader) -> dict[str, list[Row]]:
    """The rows of the present as ``reader`` has them."""
    return {view: reader.query(f"SELECT * FROM {view}").to_pylist() for view in PRESENT}


def roll_up(lake: Lake, ends: int, seconds: int) -> None:
    """Roll up every partial before unix second ``ends`` (a multiple of ``seconds``) into buckets of ``seconds``."""
    table = lake.ensure("partials")
    until = datetime.fromtimestamp(ends, UTC)
    there = table.to_pyarrow_table(filters=[("bucket_start", "<", until)])
    rows = rolled_up(there.cast(PARTIALS.schema), seconds)
    write_deltalake(table, rows, mode="overwrite", predicate=f"bucket_start < '{until:%Y-%m-%dT%H:%M:%SZ}'")


def newest(lake: Lake) -> int:
    """The unix second that every broker's events have reached."""
    times = lake.read("partials", columns=["broker", "newest_occurred_at"]).group_by("broker")
    return int(min(times.aggregate([("newest_occurred_at", "max")]).column(1).to_pylist()).timestamp())


def batches_of(events: list[Row], rng: random.Random, count: int, disorder: float) -> Iterator[list[Row]]:
    """The events in ``count`` batches, by time with ``disorder`` seconds of delay for some."""

    def arrival(event: Row) -> float:
        late = rng.expovariate(1 / disorder) if disorder and rng.random() < 0.2 else 0.0
        return float(event["occurred_at"].timestamp() + late)

    ordered = sorted(without_duplicates(events), key=arrival)
    size = max(1, -(-len(ordered) // count))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def append(lake: Lake, events: list[Row], samples: list[Row]) -> None:
    """Commit what a batch of the analysis makes of ``events``, and ``samples``."""
    lake.append("marks", pa.Table.from_pylist(marks_of(events), MARKS.schema))
    lake.append("partials", pa.Table.from_pylist(partials_of(events), PARTIALS.schema))
    if samples:
        add_samples(lake, samples)


def without_named_subscribers(log: tuple[list[Row], list[Row]]) -> tuple[list[Row], list[Row]]:
    """The part of ``log`` of which ages are told by partials alone, each event once."""
    events, samples = log
    return [event for event in without_duplicates(events) if event.get("subscriber") is None], samples
