"""The observation from a real lake: tables written by Lake, views read by Reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actuators.movers.redrive import Plan
from alerts.control import advisor, entitler, statements
from alerts.control.active_limit import Target
from alerts.control.observe import observe
from alerts.control.settings import CapacitySettings
from alerts.laws.observation import WAITING_TO_BEGUN
from lake.definitions import Definitions
from lake.select import check
from lake.store import Lake
from lake.tables import MARKS, PARTIALS, QUEUE_SAMPLES, TABLES
from lake.views import VIEWS
from sojourn.cli.redrive import _quiet_wait
from tests.support.finishing import FinishingReader as Reader
from tests.support.finishing import finish

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
QUOTED = "o'r\"d\\ers"


def partial(tenant: str, second: int, enqueued: int, completed: int, queue: str) -> dict[str, Any]:
    at = START + timedelta(seconds=second)
    row: dict[str, Any] = {
        field.name: 0 for field in PARTIALS.schema if not field.nullable and pa.types.is_int64(field.type)
    }
    unix = int(at.timestamp())
    return row | {
        "broker": "nats",
        "queue": queue,
        "subscriber": "",
        "tenant": tenant,
        "bucket_start": at,
        "bucket_seconds": 1,
        "newest_occurred_at": at + timedelta(seconds=0.9),
        "enqueued": enqueued,
        "received": completed,
        "started": completed,
        "completed": completed,
        "processing_count": completed,
        "processing_sum": 0.1 * completed,
        "backlog_cells": [{"second": unix, "net": enqueued - completed}],
    }


@pytest.mark.parametrize("queue", ["orders", QUOTED])
def test_what_the_controller_sees_is_what_is_in_the_lake(tmp_path: Path, queue: str) -> None:
    lake = Lake(tmp_path)
    lake.create()
    Definitions(window_seconds=10, target_seconds=5).save(tmp_path)
    rows = []
    for second in range(20):
        noisy = 10 if second < 12 else 100
        rows += [partial(f"t{i}", second, 10, 10, queue) for i in range(1, 4)]
        rows.append(partial("t0", second, noisy, 10, queue))
    lake.append("partials", pa.Table.from_pylist(rows, schema=PARTIALS.schema))
    newest = START + timedelta(seconds=19.9)
    sample = {
        "sampled_at": newest, "broker": "nats", "queue": queue, "depth": 700, "in_flight": 20, "staleness_seconds": 0.0,
        "source": "s", "ingested_at": newest, "ingest_date": newest.date(),
    }  # fmt: skip
    lake.append("queue_samples", pa.Table.from_pylist([sample], schema=QUEUE_SAMPLES.schema))
    noisy_one, stranger = Target("nats", queue, "t0"), Target("nats", "elsewhere", "t0")

    seen = observe(Reader(tmp_path).query, [noisy_one, stranger], newest + timedelta(seconds=1), recent_seconds=5)

    assert set(seen) == {noisy_one}
    found = seen[noisy_one]
    assert found.data_age_seconds == pytest.approx(1.0)
    assert found.sample_age_seconds == pytest.approx(1.0, abs=0.2)
    assert (found.backlog, found.depth, found.active_tenants) == (720, 700, 4)
    assert found.coverage == pytest.approx(1.0)
    assert found.completion_rate == pytest.approx(40.0)
    assert found.arrival_rate == pytest.approx(102.0), "a tenth of the second 14, and the one that fills"
    assert found.quiet_age_seconds == 0.0
    assert not found.calm


def tried_before(root: Path, became: str | None, rows: list[dict[str, Any]]) -> datetime:
    """A lake in which thirty messages of t2 are in hand since the first second, or are what they ``became``, beside
    what these ``rows`` of partials tell; when the newest came."""
    lake = Lake(root)
    lake.create()
    Definitions(window_seconds=10, target_seconds=5).save(root)
    first = partial("t2", 0, 30, 0, "orders")
    first |= {"delayed": 30} if became == "delayed" else {"received": 30, "started": 30}
    lake.append("partials", pa.Table.from_pylist([*rows, first], schema=PARTIALS.schema))
    marks = [
        {
            "broker": "nats", "queue": "orders", "subscriber": "", "tenant": "t2", "message_id": f"m{number}",
            "event_type": became, "attempt": 1, "occurred_at": START + timedelta(seconds=0.5),
        }
        for number in range(30)
    ]  # fmt: skip
    if became is not None:
        lake.append("marks", pa.Table.from_pylist(marks, schema=MARKS.schema))
    newest = START + timedelta(seconds=19.9)
    sample = {
        "sampled_at": newest, "broker": "nats", "queue": "orders", "depth": 30, "in_flight": 0,
        "staleness_seconds": 0.0, "source": "s", "ingested_at": newest, "ingest_date": newest.date(),
    }  # fmt: skip
    lake.append("queue_samples", pa.Table.from_pylist([sample], schema=QUEUE_SAMPLES.schema))
    return newest


def begun(tenant: str, enqueued: int, completed: int, age: float) -> list[dict[str, Any]]:
    """Twenty seconds of a tenant whose oldest first attempt was so old in each."""
    first = {"first_attempt_age_count": completed, "first_attempt_age_max": age}
    return [partial(tenant, second, enqueued, completed, "orders") | first for second in range(20)]


@pytest.mark.parametrize(
    ("became", "old"),
    [("failed", 19.9), (None, 0.0), ("delayed", 0.0)],  # tried again; in hand; put off
)
def test_quiet_tenants_do_not_wait_for_what_was_tried_before(tmp_path: Path, became: str | None, old: float) -> None:
    newest = tried_before(tmp_path, became, [*begun("t0", 10, 10, 0.05), *begun("t1", 10, 10, 0.05)])
    large = Target("nats", "orders", "t0")
    seen = observe(Reader(tmp_path).query, [large], newest + timedelta(seconds=1), recent_seconds=5)[large]
    assert seen.backlog == 30 and seen.quiet_age_seconds == pytest.approx(old)
    assert (seen.quiet_first_age, seen.first_age) == (0.05, 0.05)
    assert seen.quiet_wait <= WAITING_TO_BEGUN * 0.05


@pytest.mark.parametrize(
    ("rows", "tenants", "least", "most"),
    [
        ([*begun("t0", 10, 10, 0.05), *begun("t1", 10, 10, 0.05)], (), 0.0, 0.2),
        # What a noisy one waits is nobody else's wait.
        ([*begun("t0", 100, 60, 18.0), *begun("t1", 10, 10, 0.05)], (), 0.0, 0.2),
        # What is brought back begins at once, or is tried again: those beside it wait all the same.
        ([*begun("t2", 10, 10, 0.05), *begun("t1", 10, 4, 12.0), *begun("t3", 10, 4, 12.0)], ("t2",), 10.0, 20.0),
        ([*begun("t1", 10, 4, 12.0), *begun("t3", 10, 4, 12.0)], (), 10.0, 20.0),
    ],
)
def test_a_redrives_retries_neither_read_as_harm_nor_hide_it(
    tmp_path: Path, rows: list[dict[str, Any]], tenants: tuple[str, ...], least: float, most: float
) -> None:
    tried_before(tmp_path, "failed", rows)
    finish(tmp_path)
    wait = _quiet_wait(tmp_path, Plan("r1", "nats", "dead", "orders", tenants))
    assert wait is not None and least <= wait <= most
    assert _quiet_wait(tmp_path, Plan("r1", "nats", "dead", "elsewhere", tenants)) is None


@pytest.mark.parametrize("queue", ["orders", QUOTED])
def test_what_the_advisor_sees_is_what_is_in_the_lake(tmp_path: Path, queue: str) -> None:
    lake = Lake(tmp_path)
    lake.create()
    Definitions(window_seconds=10, target_seconds=5).save(tmp_path)
    rows = [partial(f"t{i}", second, 30, 10, queue) for second in range(20) for i in range(4)]
    lake.append("partials", pa.Table.from_pylist(rows, schema=PARTIALS.schema))
    newest = START + timedelta(seconds=19.9)
    sample = {
        "sampled_at": newest, "broker": "nats", "queue": queue, "depth": 1600, "in_flight": 0, "consumers": 6,
        "source": "s", "ingested_at": newest, "ingest_date": newest.date(),
    }  # fmt: skip
    lake.append("queue_samples", pa.Table.from_pylist([sample], schema=QUEUE_SAMPLES.schema))
    reader = Reader(tmp_path)

    def query(sql: str) -> pa.Table:
        check(sql, {*VIEWS, *TABLES})
        return reader.query(sql)

    wanted = [CapacitySettings(broker="nats", queue=name) for name in (queue, "elsewhere")]
    looks = advisor.look(query, wanted, newest + timedelta(seconds=1))

    assert looks["nats", "elsewhere", ""].seen is None
    seen = looks["nats", queue, ""].seen
    assert seen is not None
    assert (seen.arrival_rate, seen.finish_rate, seen.backlog) == pytest.approx((120, 40, 1600))
    assert seen.service_seconds == pytest.approx(0.1)
    assert (seen.consumers, seen.waiting) == (6, True)


@pytest.mark.parametrize("queue", ["orders", QUOTED])
def test_what_the_entitler_sees_is_what_is_in_the_lake(tmp_path: Path, queue: str) -> None:
    lake = Lake(tmp_path)
    lake.create()
    rows = [partial(f"t{i}", second, 30, 10, queue) for second in range(19) for i in range(4)]
    rows += [partial(f"t{i}", 19, 27, 9, queue) for i in range(4)]  # nine tenths of a second, as yet
    lake.append("partials", pa.Table.from_pylist(rows, schema=PARTIALS.schema))
    reader = Reader(tmp_path)

    def query(sql: str) -> pa.Table:
        check(sql, {*VIEWS, *TABLES})
        return reader.query(sql)

    places = [("nats", queue), ("nats", "elsewhere")]
    found = entitler.look(query, places, START + timedelta(seconds=20.5))
    assert set(found) == {("nats", queue)}
    seen, names = found["nats", queue], [f"t{i}" for i in range(4)]
    assert seen.arrivals == pytest.approx(dict.fromkeys(names, 30.0))
    assert seen.finished == pytest.approx(dict.fromkeys(names, 10.0))
    assert seen.work == pytest.approx(dict.fromkeys(names, 1.0)) and seen.waiting == dict.fromkeys(names, 398.0)


@pytest.mark.parametrize(
    ("most_named", "odd"),
    [(statements.MOST_NAMED, "'\\,|\n"), (10, ""), (statements.MOST_NAMED, "\x1f"), (9**9, "${HOME}")],
)
def test_hundreds_of_tenants_are_observed_by_three_statements_whatever_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_named: int, odd: str
) -> None:
    monkeypatch.setattr(statements, "MOST_NAMED", most_named)
    lake = Lake(tmp_path)
    lake.create()
    Definitions(window_seconds=10, target_seconds=5).save(tmp_path)
    names = [f"t{i}{odd}" for i in range(400)]
    rows = [partial(name, 10, 2 + i, 0, queue) for i, name in enumerate(names) for queue in ("orders", "bills")]
    rows.append(partial("newest", 20, 1, 0, "orders"))
    lake.append("partials", pa.Table.from_pylist(rows, schema=PARTIALS.schema))
    newest = START + timedelta(seconds=20.9)
    samples = [
        {
            "sampled_at": newest, "broker": "nats", "queue": queue, "depth": 100_000, "in_flight": 0,
            "staleness_seconds": 0.0, "source": "s", "ingested_at": newest, "ingest_date": newest.date(),
        }
        for queue in ("orders", "bills")
    ]  # fmt: skip
    lake.append("queue_samples", pa.Table.from_pylist(samples, schema=QUEUE_SAMPLES.schema))
    reader, asked = Reader(tmp_path), []

    def query(sql: str) -> pa.Table:
        asked.append(sql)
        check(sql, {*VIEWS, *TABLES})
        return reader.query(sql)

    targets = [Target("nats", "orders", name) for name in names] + [Target("nats", "bills", names[0])]
    seen = observe(query, targets, newest + timedelta(seconds=1), recent_seconds=10)

    assert len(asked) == 3
    assert set(seen) == set(targets)
    assert [seen[target].arrival_rate for target in targets[:-1]] == pytest.approx(
        [0.1 * (2 + i) / 10 for i in range(400)]
    )
    total = sum(2 + i for i in range(400))
    of_bills = seen[targets[-1]]
    assert (of_bills.arrival_rate, of_bills.others_rate) == pytest.approx((0.02, 0.01 * (total - 2)))
    assert (of_bills.backlog, of_bills.active_tenants) == (total, 400)
    assert of_bills.quiet_age_seconds == pytest.approx(10, abs=1), "wanted in orders, they are quiet in bills"
    assert seen[targets[0]].quiet_age_seconds < 1, "all that wait in orders are wanted"
