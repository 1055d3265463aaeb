"""An incident that the lake holds, run again: what came, who was noisy, and what would have been better."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from alerts.control.settings import ControlSettings, PolicySettings, to_compare
from lab import incident
from lab.compare import compare
from lab.replay import ranked, scenario, ways
from lab.run import simulate
from lab.scenario import resampled
from lake.definitions import Definitions
from lake.errors import UserError
from lake.store import Lake
from lake.tables import MESSAGE_EVENTS
from sojourn.cli.main import app

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SECONDS, SERVERS = 60, 4
ANY = (None, None, None)
SHIPPED = PolicySettings(name="shipped")


def arrivals(seed: int = 1) -> list[tuple[float, str, list[float]]]:
    """Four tenants at 5/s, and one that sends 60/s for half a minute; one in ten fails once; 0.1 s each."""
    rng = random.Random(seed)
    found = []
    for name in ("a", "b", "c", "d", "noisy"):
        at = 0.0
        while (at := at + rng.expovariate(60.0 if name == "noisy" and 10 <= at < 40 else 5.0)) < SECONDS:
            tries = 2 if rng.random() < 0.1 else 1
            found.append((at, name, [rng.expovariate(10) for _ in range(tries)]))
    return sorted(found)


def events(
    came: list[tuple[float, str, list[float]]], outage: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """What first-in-first-out consumers, ``SERVERS`` of them, tell of it; nothing begins during the ``outage``."""
    rows: list[dict[str, Any]] = []

    def tell(kind: str, number: int, at: float, attempt: int = 0, work: float | None = None) -> None:
        when = START + timedelta(seconds=at)
        base: dict[str, Any] = dict.fromkeys(field.name for field in MESSAGE_EVENTS.schema)
        rows.append(
            base
            | {
                "event_id": f"{number}/{kind}/{attempt}", "event_type": kind, "broker": "nats", "queue": "orders",
                "subscriber": None if kind == "enqueued" else "shop", "tenant": came[number][1],
                "message_id": str(number), "attempt": attempt or None, "occurred_at": when, "clock": "broker",
                "processing_seconds": work, "source": "test", "ingested_at": when, "ingest_date": when.date(),
            }
        )  # fmt: skip

    waiting = [(at, number, 1) for number, (at, _, _) in enumerate(came)]
    heapq.heapify(waiting)
    free = [0.0] * SERVERS
    for number, (at, _, _) in enumerate(came):
        tell("enqueued", number, at)
    while waiting:
        ready, number, attempt = heapq.heappop(waiting)
        begins = max(ready, heapq.heappop(free))
        if outage is not None and outage[0] <= begins < outage[1]:
            begins = outage[1]
        work = came[number][2][attempt - 1]
        heapq.heappush(free, begins + work)
        tell("received", number, begins, attempt)
        last = attempt == len(came[number][2])
        tell("completed" if last else "failed", number, begins + work, attempt, work)
        if not last:
            heapq.heappush(waiting, (begins + work, number, attempt + 1))
    return rows


def lake_of(root: Path, rows: list[dict[str, Any]]) -> Path:
    lake = Lake(root)
    lake.create()
    Definitions(window_seconds=10, target_seconds=3).save(root)
    lake.append("message_events", pa.Table.from_pylist(rows, schema=MESSAGE_EVENTS.schema))
    return root


def read(root: Path, seconds: float = SECONDS) -> incident.Incident:
    return incident.read(root, START, START + timedelta(seconds=seconds), ANY)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake_of(tmp_path_factory.mktemp("lake"), events(arrivals()))


def test_what_came_and_how_long_it_took_is_what_the_events_say(root: Path) -> None:
    found, came = read(root), arrivals()
    assert found.place == ("nats", "orders", "shop")
    assert [(one.at, one.tenant) for one in found.arrivals] == [
        (pytest.approx(at, abs=1e-6), name) for at, name, _ in came
    ]
    assert [one.work for one in found.arrivals] == [tuple(work) for _, _, work in came]
    assert found.servers == ((0.0, SERVERS),)


def test_first_in_first_out_comes_to_what_happened(root: Path) -> None:
    found = read(root)
    built = scenario(found, Definitions.load(root), ways({}))
    assert {one.name for one in built.tenants if one.suspect} == {"noisy"}
    ran = simulate(built, 0, built.variants[0])
    ages = sorted(age for name, ages in found.ages.items() if name != "noisy" for age in ages)
    assert ran.done == pytest.approx(found.done, rel=0.01)
    assert ran.quiet_p99 == pytest.approx(ages[int(0.99 * len(ages))], rel=0.1)


def test_an_outage_is_in_what_the_servers_did(tmp_path: Path) -> None:
    found = read(lake_of(tmp_path, events(arrivals(), outage=(20.0, 30.0))))
    counts = dict(found.servers)
    assert any(count == 0 for at, count in counts.items() if 19 <= at <= 22)
    assert any(count == SERVERS for at, count in counts.items() if 29 <= at <= 31)


def test_every_way_is_ranked_beside_nothing(root: Path) -> None:
    built = scenario(read(root), Definitions.load(root), ways({"shipped": SHIPPED}))
    found = compare(built, [0])
    order = [one.variant for one in ranked(found, built.service_mean)]
    assert set(order) == {way.name for way in ways({"shipped": SHIPPED})}
    assert order.index("fair order (SFQ)") < order.index("nothing (FIFO)")
    best = {one.variant: one for one in found}
    assert best["fair order (SFQ)"].quiet.mean < 0.2 * best["nothing (FIFO)"].quiet.mean
    assert {one.innocents for one in found} == {0}


def test_a_seed_draws_service_times_from_the_tenants_own(root: Path) -> None:
    built = scenario(read(root), Definitions.load(root), ways({}))
    other = resampled(built, 1)
    assert resampled(built, 0) == built and resampled(built, 1) == other != built
    assert [(one.at, one.tenant) for one in other.trace] == [(one.at, one.tenant) for one in built.trace]
    own = {(one.tenant, one.work) for one in built.trace}
    assert {(one.tenant, one.work) for one in other.trace} <= own


def test_tenants_beyond_the_most_are_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.traced.MOST_TENANTS", 2)
    built = scenario(read(root), Definitions.load(root), ways({}))
    assert len(built.tenants) == 3 and "(all others)" in {one.name for one in built.tenants}


def test_what_was_there_before_waits_from_the_start_and_what_nobody_got_to_takes_as_long_as_others(
    tmp_path: Path,
) -> None:
    rows = events(arrivals())
    cut = START + timedelta(seconds=30)
    root = lake_of(tmp_path, [row for row in rows if row["event_type"] == "enqueued" or row["occurred_at"] < cut])
    late = incident.read(root, START, cut, ANY)
    assert len(late.arrivals) == sum(at < 30 for at, _, _ in arrivals())
    assert all(one.work for one in late.arrivals)


def test_what_cannot_be_run_again_is_refused_with_the_reason(root: Path, tmp_path: Path) -> None:
    later = START + timedelta(hours=1)
    for args, reason in [
        ((root, later, START, ANY), "ends after it began"),
        ((root, later, later + timedelta(minutes=1), ANY), "nothing was finished"),
        ((root, START, later, ("nats", "bills", None)), "nothing was finished"),
        ((tmp_path, START, later, ANY), "no events"),
    ]:
        with pytest.raises(UserError, match=reason):
            incident.read(*args)
    untimed = lake_of(
        tmp_path / "untimed",
        [row | {"processing_seconds": None} for row in events(arrivals()) if row["event_type"] != "received"],
    )
    with pytest.raises(UserError, match="how long work took"):
        read(untimed)


def test_the_command_prints_the_ranking(root: Path) -> None:
    until = (START + timedelta(seconds=SECONDS)).isoformat()
    command = ["lab", "--from-lake", f"{START.isoformat()}..{until}", "--lake", str(root), "--seeds", "1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "nats/orders/shop" in lines[0] and "noisy: noisy" in lines[0]
    assert any("as it happened" in line for line in lines)
    assert any(line.split()[:1] == ["1"] for line in lines)
    for name in ("FIFO", "SFQ", "DRR", "SQS", "entitlements", "throttle-noisy (aimd)", "shipped (rate_limit)"):
        assert name in done.output


@pytest.mark.parametrize("options", [[], ["noisy-neighbour", "--from-lake", "a..b"], ["--from-lake", "a"]])
def test_a_command_that_is_not_clear_is_refused(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["lab", *options])
    assert done.exit_code != 0 and isinstance(done.exception, (UserError, SystemExit))


def test_shipped_kinds_are_compared_once_each() -> None:
    assert [one.law for one in to_compare(ControlSettings())] == ["aimd", "rate_limit", "inverse_backlog"]
    own = ControlSettings(policies=(PolicySettings(name="mine", lease_seconds=20),))
    assert len(to_compare(own)) == 4


def test_all_attempts_but_the_last_fail_and_a_trace_needs_no_phases(root: Path) -> None:
    built = scenario(read(root), Definitions.load(root), ways({}))
    ran = simulate(replace(built, done_by=None), 0, built.variants[0])
    assert ran.completed == len(arrivals())
