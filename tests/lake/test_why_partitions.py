"""One partition that falls behind alone is told apart from slots that are gone."""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from dashboard.pages import details
from dashboard.services.why import lines
from lake.reader import Reader
from lake.tables import MESSAGE_EVENTS
from lake.why import Cause, Told, tell
from lake.why.law import Part, Rise
from lake.why.partitions import Partition, with_one_partition
from tests.reference.partials import fill

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS, TURNED, SLOTS, SERVICE = 240, 120, 8, 0.2


def events(
    rates: Mapping[int, float], *, slots: Mapping[int, int], name: str = "orders.{partition}.{offset}"
) -> list[Any]:
    """Four partitions, 20/s each and eight slots, which take 40/s; since :data:`TURNED` as ``rates`` and ``slots``."""
    chance = random.Random(5)
    rows: list[dict[str, Any]] = []

    def note(kind: str, message: str, at: float, enqueued: float, took: float | None = None) -> None:
        if at >= SECONDS:
            return
        begun = kind != "enqueued"
        when = START + timedelta(seconds=at)
        rows.append(
            dict.fromkeys(field.name for field in MESSAGE_EVENTS.schema)
            | {
                "event_id": f"{message}/{kind}", "event_type": kind, "broker": "kafka", "queue": "orders",
                "subscriber": "shop" if begun else None, "tenant": "acme", "message_id": message,
                "attempt": 1 if begun else None, "enqueued_at": START + timedelta(seconds=enqueued),
                "occurred_at": when, "processing_seconds": took, "clock": "broker", "source": "test",
                "ingested_at": when, "ingest_date": when.date(),
            }
        )  # fmt: skip

    for partition in range(4):
        at, offset, free = 0.0, 0, [0.0] * SLOTS
        while (at := at + chance.expovariate(rates.get(partition, 20.0) if at >= TURNED else 20.0)) < SECONDS:
            message, offset = name.format(partition=partition, offset=offset), offset + 1
            note("enqueued", message, at, at)
            begins = max(at, heapq.heappop(free))
            while begins >= TURNED and len(free) >= slots.get(partition, SLOTS):
                begins = max(at, heapq.heappop(free))
            took = SERVICE * chance.uniform(0.5, 1.5)
            heapq.heappush(free, begins + took)
            note("received", message, begins, at)
            note("completed", message, begins + took, at, took)
    return rows


def told_of(root: Path, rows: list[Any]) -> Told:
    lake = fill(root, rows, [], finished=True)
    lake.append("message_events", pa.Table.from_pylist(rows, schema=MESSAGE_EVENTS.schema))
    reader = Reader(root)
    told = tell(lambda sql: reader.query(sql).to_pylist(), "kafka", "orders", "shop")
    assert told is not None and told.rise is not None and told.rise.parts, told
    assert sum(part.seconds for part in told.rise.parts) == pytest.approx(told.rise.seconds)
    return told


def test_a_hot_partition_is_named_and_has_what_idle_slots_would_have_taken(tmp_path: Path) -> None:
    told = told_of(tmp_path, events({0: 62.0, 1: 6.0, 2: 6.0, 3: 6.0}, slots={}))
    assert told.partition == "0" and told.rise is not None
    parts = {part.cause: part for part in told.rise.parts}
    one = parts[Cause.PARTITION]
    assert one.seconds > 0.8 * told.rise.seconds and abs(parts[Cause.SLOTS].seconds) < 0.1 * one.seconds
    assert one.before == pytest.approx(0.775, abs=0.03) and one.now is not None and one.now > 0.97
    (statement,) = (text for name, text in told.sql.items() if name == "partitions")
    assert [row["name"] for row in Reader(tmp_path).query(statement).to_pylist()] == ["0", "1", "2", "3"]
    shown = lines(told)
    assert {line.cause: line.sql for line in shown} == {
        part.cause.value: statement if part is one else told.sql["flows"] for part in told.rise.parts
    }
    links = re.findall(r'sql=([^"]+)" [^>]*The SQL behind ([a-z ]+)"', details.parts(shown, []))
    assert {cause for sql, cause in links if unquote(sql) == statement.strip()} == {"one partition"}


def test_consumers_that_are_too_few_for_all_partitions_are_slots(tmp_path: Path) -> None:
    told = told_of(tmp_path, events({}, slots=dict.fromkeys(range(4), 3)))
    assert told.rise is not None
    parts = {part.cause: part.seconds for part in told.rise.parts}
    assert parts[Cause.SLOTS] > 0.7 * told.rise.seconds > 5 * parts.get(Cause.PARTITION, 0.0)


def test_messages_of_other_brokers_name_no_partition(tmp_path: Path) -> None:
    told = told_of(tmp_path, events({0: 62.0, 1: 6.0, 2: 6.0, 3: 6.0}, slots={}, name="m{partition}-{offset}"))
    assert told.rise is not None and told.partition == "" and "partitions" not in told.sql
    assert Cause.PARTITION not in {part.cause for part in told.rise.parts}


@pytest.mark.parametrize(
    ("partitions", "part"),
    [
        ({"0": (60, 20), "1": (20, 20)}, 1.0),  # nothing waits elsewhere
        ({"0": (60, 30), "1": (60, 30)}, 0.0),  # all wait alike
        ({"0": (60, 30), "1": (60, 50)}, 0.5),  # three of four that wait, half of what comes
        ({"0": (60, 20)}, 0.0),  # the only one
        ({"0": (20, 30), "1": (20, 20)}, 0.0),  # nothing that came since waits
    ],
)
def test_the_part_of_one_partition_is_what_it_has_beyond_its_share(
    partitions: dict[str, tuple[float, float]], part: float
) -> None:
    rise = Rise(0, 60, 0.0, 10.0, 5.0, (Part(Cause.SLOTS, 40.0, 8.0), Part(Cause.UNKNOWN, None, 2.0)))
    found, name = with_one_partition(rise, [Partition(key, *flow) for key, flow in partitions.items()])
    assert sum(each.seconds for each in found.parts) == pytest.approx(10.0)
    assert sum(each.seconds for each in found.parts if each.cause is Cause.PARTITION) == pytest.approx(8.0 * part)
    assert name == ("0" if part else "")
