"""Event → partial has one meaning: client, collectors and Spark make equal rows of any log, whatever stands in it."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from collectors import records
from collectors.rollup import Rollup as CollectorsRollup
from lake.tables import EVENT_TYPES, MARKS, MESSAGE_EVENTS, PARTIALS
from sojourn.client.events import Event
from sojourn.client.partial import LONGEST_SECONDS, is_mark
from sojourn.client.summary import Rollup
from spark_analytics import transforms
from tests.reference.lives import micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

LOGS, MOST_EVENTS = 240, 60
SEED = 20
SECOND = 1_000_000
START = 1_772_366_400 * SECOND
#: Where histogram buckets meet, in microseconds: every power of two from a 64th of a second on is a whole number.
EDGES = [2**power * SECOND // 64 for power in range(24)]
EDGES += [round(2 ** (number / 64) * SECOND) for number in range(-600, 1200, 7)]
AGES = (0, 1, 999_999, SECOND, -1, -1_500_000, -90 * 86_400 * SECOND, 400 * 86_400 * SECOND)
ATTEMPTS = (None, None, 1, 1, 1, 2, 2, 7, 2**31 - 1, 0, -1)
TIMES = (None, 0.0, -0.0, -1.5, 1e-7, 1e-6, 0.25, 0.1, 3.7, 86_400.0, 1e11, math.nextafter(LONGEST_SECONDS, 0))
TIMES += (LONGEST_SECONDS, 1e300, math.inf, -math.inf, math.nan)


def log(rng: random.Random, name: str) -> list[Event]:
    """Events of few queues, subscribers, tenants and seconds, so that they meet; some of them twice."""
    events = []
    for number in range(rng.randint(1, MOST_EVENTS)):
        occurred = START + rng.randrange(3) * SECOND + rng.choice((0, 1, 999_999, rng.randrange(SECOND)))
        age = rng.choice((None, rng.choice(AGES), rng.choice(EDGES) + rng.randint(-1, 1), rng.randrange(10**9)))
        events.append(
            Event(
                rng.choice((*EVENT_TYPES, "received", "completed", "unheard_of")),
                name,
                rng.choice(("a", "b")),
                f"m{number}",
                rng.choice((None, "", "s")),
                rng.choice((None, "unknown", "", "t", "ünï")),
                rng.choice(ATTEMPTS),
                None if age is None else occurred - age,
                occurred,
                rng.choice(TIMES),
                None,
                None,
                None,
            )
        )
    events += rng.sample(events, len(events) // 8)
    rng.shuffle(events)
    return events


@pytest.fixture(scope="module")
def logs() -> dict[str, list[Event]]:
    rng = random.Random(SEED)
    return {f"log-{number}": log(rng, f"log-{number}") for number in range(LOGS)}


@pytest.fixture(scope="module")
def computed(spark: SparkSession, logs: dict[str, list[Event]]) -> dict[str, Row]:
    """What Spark's transform makes of each log: one job for them all."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = list(transforms.EVENT_COLUMNS)
    schema = pa.schema([MESSAGE_EVENTS.schema.field(name) for name in names])
    rows = [tuple(getattr(event, name) for name in names) for events in logs.values() for event in events]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    made = pa.schema(
        [
            pa.field(name, pa.list_(pa.struct(list(table.schema))))
            for name, table in (("partials", PARTIALS), ("marks", MARKS))
        ]
    )

    def compute(piece: pa.Table) -> pa.Table:
        events = transforms.Events(piece)
        tables = {"partials": transforms.partials(events), "marks": transforms.marks(events)}
        arrays = []
        for name, table in tables.items():
            structs = pa.StructArray.from_arrays(
                [column.combine_chunks() for column in table.columns], fields=list(made.field(name).type.value_type)
            )
            arrays.append(pa.ListArray.from_arrays(pa.array([0, len(structs)], pa.int32()), structs))
        return pa.Table.from_arrays(arrays, schema=made)

    frame = spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema)).groupBy("broker")
    results = frame.applyInArrow(compute, from_arrow_schema(made)).toArrow().to_pylist()
    return {result["partials"][0]["broker"]: result for result in results}


def plain(row: Row) -> Row:
    """A row as Arrow gives it back, in the shape of the client's: microseconds, and lists of pairs in order."""
    found: Row = {}
    for name, value in row.items():
        if name in ("bucket_start", "newest_occurred_at"):
            found[name] = micros(value)
        elif isinstance(value, list):
            found[name] = [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in value]
        elif name.endswith("_sum") and value is not None:
            found[name] = pytest.approx(value, rel=1e-12)  # in whichever order floats were added
        elif not name.startswith("first_subscriber_"):  # what maintenance adds
            found[name] = value
    return found


def by_key(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in ("queue", "subscriber", "tenant", "bucket_start")): row for row in rows}


def test_the_client_counts_what_spark_counts(logs: dict[str, list[Event]], computed: dict[str, Row]) -> None:
    assert computed.keys() == logs.keys()
    for name, events in logs.items():
        rollup = Rollup(10**9)
        for event in events:
            rollup.add(event)
        assert by_key(rollup.take(10**9)[0]) == by_key(list(map(plain, computed[name]["partials"]))), (SEED, name)


def test_the_collectors_count_what_spark_counts(logs: dict[str, list[Event]], computed: dict[str, Row]) -> None:
    ours = ("source", "ingested_at", "ingest_date")
    for name, events in logs.items():
        rollup = CollectorsRollup()
        rollup.add(records.Event(*(getattr(event, field) for field in records.Event._fields)) for event in events)
        rows = rollup.table(name, "tap").drop_columns(list(ours)).to_pylist()
        assert by_key(list(map(plain, rows))) == by_key(list(map(plain, computed[name]["partials"]))), (SEED, name)


def test_a_mark_is_what_spark_remembers(logs: dict[str, list[Event]], computed: dict[str, Row]) -> None:
    for name, events in logs.items():
        expected = sorted(
            event.message_id for event in events if is_mark(event.event_type, event.attempt, bool(event.subscriber))
        )
        assert sorted(mark["message_id"] for mark in computed[name]["marks"] or ()) == expected, (SEED, name)
