"""Laws of their own at work in the controller: real measurements in, limits that clients obey and a journal out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

import sojourn
from actuators.base import Demand
from actuators.nats_consumer import NatsInFlight, NatsInFlightSettings
from alerts.control import build, observe
from alerts.control.active_limit import Target
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.control.signals import PROBE
from collectors.rabbitmq.names import OURS
from lake.select import check
from lake.store import Lake
from lake.tables import PARTIALS, QUEUE_SAMPLES, TABLES
from lake.views import VIEWS
from tests.actuators.places import nats_in_flight_place
from tests.control.conftest import World
from tests.control.test_loop import sent, until
from tests.control.test_real_lake import START, partial
from tests.support.deep import examples
from tests.support.finishing import FinishingReader as Reader

Start = Callable[..., Any]
RECEIVER: dict[str, Any] = {"law": "output_rate", "max_step": 0.5, "options": {"every_seconds": 10}}
PUBLISHER: dict[str, Any] = {"law": "publishing", "priority": "P2"}


def journaled(loop: Any) -> list[tuple[str, str, float | None]]:
    return [(row["decision"], row["outcome"], row["after"]) for row in loop.journal()]


def test_a_receiver_that_fails_is_delivered_to_more_slowly_and_the_journal_says_by_what(
    start: Start, serve: Callable[..., Any]
) -> None:
    loop = start(**RECEIVER, lease_seconds=600)
    loop.world.now = datetime.now(UTC)
    loop.world.finished, loop.world.failed = 80, 20
    with serve(loop.control) as url, sojourn.Limits(url, broker="nats") as limits:
        until(lambda: limits.counters()["updates"] == 1)
        loop.throttle("t0")
        until(limits.in_force)
        assert limits.in_force() == {("orders", "t0"): pytest.approx(80.0)}, "0.8 × the 100 attempts a second"
        assert sent(limits, "t0", 1000) < 1000 == sent(limits, "t1", 1000)
        (row,) = loop.journal()
        told = dict(row["inputs"])
        assert (row["decision"], row["outcome"], told["code"]) == ("throttle", "applied", "signal")
        assert (told["attempts"], told["failures"]) == ("1000", "200")
        assert "20% of 1000 failed" in row["reason"]
        loop.world.finished, loop.world.failed = 80, 0
        loop.run(60)
        assert loop.served() == {} and loop.decisions()[-1] == "release"
        loop.control.wake()


def test_a_receiver_that_takes_nothing_is_only_tried_as_far_as_step_and_floor_allow(start: Start) -> None:
    loop = start(**RECEIVER, floor=0.5, lease_seconds=600)
    loop.world.finished, loop.world.failed = 10, 90
    loop.throttle("t0")
    assert loop.served() == {"t0": pytest.approx(50.0)}
    for _ in range(60):
        loop.world.finished = 0
        loop.world.failed = max(1, round(loop.served()["t0"]))
        loop.run(1, "t0")
    assert loop.served() == {"t0": 0.5}


@pytest.mark.parametrize(("probe", "seconds"), [("running", 0.5), ("blocked", None), ("unconfirmed", None)])
def test_a_congested_broker_slows_each_tenant_by_its_priority(start: Start, probe: str, seconds: float | None) -> None:
    loop = start(**PUBLISHER)
    loop.world.probe, loop.world.publish_seconds = probe, seconds
    loop.throttle("t0")
    assert loop.served() == {"t0": pytest.approx(72.0)}, "120/s less 40 %"
    (row,) = loop.journal()
    assert dict(row["inputs"])["publish_errors"] == ("0" if probe == "running" else "1")
    loop.world.probe, loop.world.publish_seconds, loop.world.noisy_rate = "running", 0.01, 72
    loop.run(7, "t0")
    assert loop.served() == {"t0": pytest.approx(82.0)}, "relieved: P2 +10/s"


@pytest.mark.parametrize(
    "blind",
    [
        {"probe": None},
        {"coverage": 0.3},
        {"probed_ago": 30.0},
        {"staleness": 60.0},
        {"lag": timedelta(minutes=1)},
    ][: examples(2, 5)],
)
def test_a_broker_that_tells_nothing_of_publishing_changes_nothing_and_is_named_once(
    start: Start, blind: dict[str, Any]
) -> None:
    loop = start(**PUBLISHER)
    loop.world.probe, loop.world.publish_seconds = "running", 0.5
    loop.throttle("t0")
    limit = loop.served()
    assert limit
    for name, value in blind.items():
        setattr(loop.world, name, value)
    loop.run(5, "t0")
    assert loop.served() == limit
    loop.run(20, "t0")
    assert loop.served() == {}, "nobody renewed the lease"
    assert loop.decisions() == ["throttle", "skip", "expire"]


@pytest.mark.parametrize("mode", ["dry_run", "approve"])
def test_a_law_of_its_own_is_tried_and_approved_as_others_are(start: Start, mode: str) -> None:
    loop = start(**RECEIVER, dry_run=None, mode=mode, lease_seconds=600)
    loop.world.finished, loop.world.failed = 80, 20
    loop.throttle("t0")
    loop.run(3, "t0")
    assert loop.served() == {}
    (found,) = loop.control.controller.active_limits.values()
    assert found.shadow is not None and found.shadow.delayed > 0
    if mode == "approve":
        assert loop.control.controller.approve(found.action_id, loop.world.now)
        assert loop.served() == {"t0": pytest.approx(80.0)}


def test_after_a_restart_a_law_goes_on_from_the_limit_that_is_in_force(start: Start) -> None:
    loop = start(**RECEIVER, lease_seconds=600)
    loop.world.finished, loop.world.failed = 80, 20
    loop.throttle("t0")
    loop.control.close()
    loop = start(**RECEIVER, lease_seconds=600)
    loop.run(1, "t0")
    assert loop.served() == {"t0": pytest.approx(80.0)}
    loop.world.finished, loop.world.failed = 64, 16
    loop.run(8, "t0")
    assert loop.served() == {"t0": pytest.approx(64.0)}


def test_codel_thins_a_tenant_while_the_quiet_wait_and_lets_go_when_they_do_not(start: Start) -> None:
    loop = start(law="codel", lease_seconds=600)
    for _ in range(60):
        loop.run(1, "t0")
        loop.world.noisy_rate = min(120, round(loop.served().get("t0", 120)))
    assert 20 < loop.served()["t0"] < 110
    assert "CoDel" not in loop.journal()[-1]["reason"] and "above target" in loop.journal()[0]["reason"]
    loop.world.calm(noisy_rate=10)
    loop.run(120)
    assert loop.served() == {}


def test_squelch_keeps_places_free_for_what_is_under_way_and_frees_the_tenant_at_once(start: Start) -> None:
    loop = start(law="squelch", options={"places": 4000, "delay_seconds": 5}, floor=2, lease_seconds=600)
    loop.world.backlog = 1500
    loop.throttle("t0")
    assert loop.served() == {}, "2,500 places are free, 950 are kept"
    loop.world.backlog = 3100
    loop.run(2, "t0")
    assert loop.served() == {"t0": 2.0}
    loop.world.noisy_rate, loop.world.backlog = 2, 2300
    loop.run(10, "t0")
    assert loop.served() == {"t0": 2.0}, "1,700 are free: twice 950 let it go on"
    loop.world.backlog = 2000
    loop.run(1, "t0")
    assert loop.served() == {}


def test_permits_keep_a_tenant_to_its_part_of_the_queue(start: Start) -> None:
    loop = start(law="permits", options={"buffer": 600}, lease_seconds=600)
    loop.world.backlog = 590
    loop.throttle("t0")
    assert loop.served() == {"t0": pytest.approx(2.0)}, "ten permits, for five seconds"
    assert "0 permits pending + 10 in flight + 590 in hand, a buffer of 600" in loop.journal()[0]["reason"]
    loop.world.noisy_rate, loop.world.backlog = 2, 100
    loop.run(12, "t0")
    assert loop.served() == {}, "it sends less than there are permits for"


HELD_BACK: dict[str, Any] = {"law": "prefetch", "options": {"network_seconds": 0.1}}


def test_a_consumer_that_fetches_too_far_ahead_is_bounded_at_its_server_and_has_its_own_bound_back(
    start: Start, tmp_path: Path
) -> None:
    place = nats_in_flight_place(tmp_path / "nats", Demand("", "", "", 1, 1, START, "", ""))
    assert place.server is not None
    try:
        loop = start(
            **HELD_BACK, actuators=[{"name": "nats-bound", **place.settings}], actuator="nats-bound", lease_seconds=600
        )
        bound = NatsInFlight(NatsInFlightSettings(name="looking", **place.settings))
        loop.world.service_seconds, loop.world.in_hand_limit = 0.004, 500
        loop.throttle("t0")
        assert bound.read("ORDERS/of-t0") == "26", "104 ms ÷ 4 ms"
        assert bound.read("ORDERS/of-t1") == "500"
        assert loop.served() == {}
        (row,) = loop.journal()
        assert (row["outcome"], row["after"]) == ("applied", 26.0)
        assert "the buffer holds messages back" in row["reason"]
        assert dict(row["inputs"])["prefetch"] == "500" and dict(row["inputs"])["setting_before"] == "500"
        assert loop.control.controller.revoke(row["action_id"], loop.world.now)
        assert bound.read("ORDERS/of-t0") == "500"
    finally:
        place.server.stop()


@pytest.mark.parametrize(
    ("policy", "bound", "why"),
    [
        # 70/s of others leave 10 of the 80/s that are finished: 10/s × 0.5 s × 1.5
        ({"law": "concurrency", "options": {"service_seconds": 0.5}}, "8", "a share of 10/s × 0.5 s × 1.5 = 8 in work"),
        ({"law": "gradient", "options": {"guard_seconds": 1.0}}, "250", "latency 4 s is beyond the guard of 1 s"),
    ],
)
def test_a_tenant_whose_work_has_become_slow_has_no_more_workers_for_it(
    start: Start, tmp_path: Path, policy: dict[str, Any], bound: str, why: str
) -> None:
    place = nats_in_flight_place(tmp_path / "nats", Demand("", "", "", 1, 1, START, "", ""))
    assert place.server is not None
    try:
        common = {"actuators": [{"name": "nats-bound", **place.settings}], "actuator": "nats-bound"}
        loop = start(**policy, **common, max_step=1.0, lease_seconds=600)
        there = NatsInFlight(NatsInFlightSettings(name="looking", **place.settings))
        loop.world.service_seconds, loop.world.in_hand_limit, loop.world.in_work = 4.0, 500, 480
        loop.world.finished = 10
        loop.throttle("t0")
        assert (there.read("ORDERS/of-t0"), there.read("ORDERS/of-t1")) == (bound, "500")
        (row,) = loop.journal()
        assert why in row["reason"] and dict(row["inputs"])["prefetch"] == "500"
        assert loop.control.controller.revoke(row["action_id"], loop.world.now)
        assert there.read("ORDERS/of-t0") == "500"
    finally:
        place.server.stop()


def test_a_receiver_that_refuses_most_gets_k_attempts_for_each_that_it_accepts(start: Start) -> None:
    loop = start(law="client_throttle", max_step=1.0, options={"over_seconds": 10}, lease_seconds=600)
    loop.world.finished, loop.world.failed = 20, 80
    loop.throttle("t0")
    assert loop.served() == {"t0": pytest.approx(40.0)}, "2 × the 20/s that it accepts"
    assert "200 of 1000 attempts accepted in 10 s" in loop.journal()[0]["reason"]
    loop.world.finished, loop.world.failed = 40, 0
    loop.run(90, "t0")
    assert loop.served() == {}, "it takes all again"


def test_advice_for_consumers_that_nobody_can_bound_is_in_the_journal(start: Start) -> None:
    loop = start(**HELD_BACK, dry_run=True)
    loop.world.service_seconds, loop.world.prefetch = 0.04, 51
    loop.throttle("t0")
    (row,) = loop.journal()
    assert (row["outcome"], row["after"]) == ("dry_run", 4.0)
    assert "0.14 s round trip ÷ 0.04 s = 4; the buffer holds messages back by 1.88 s" in row["reason"]
    (found,) = loop.control.controller.active_limits.values()
    assert found.in_hand and found.shadow is None
    with pytest.raises(ValidationError, match="bounds messages in hand"):
        ControlSettings(policies=(PolicySettings(name="p", mode="auto", **HELD_BACK),))
    one: dict[str, Any] = {"kind": "nats_max_ack_pending", "name": "n", "consumer": "of-{tenant}", "service_seconds": 1}
    both = ({"name": "p", "mode": "auto", "actuator": "n"} | HELD_BACK, {"name": "q", "mode": "auto", "actuator": "n"})
    with pytest.raises(ValidationError, match="share the actuator 'n'"):
        ControlSettings.model_validate({"policies": both, "actuators": [one]})


def test_the_signals_are_what_is_in_the_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    rows = [partial(f"t{i}", second, 10, 8, "orders") for second in range(20) for i in range(3)]
    for row in rows:
        if row["tenant"] == "t0":
            row["failed"] = 2
        if row["tenant"] == "t1":
            row["dead_lettered"] = 1
    lake.append("partials", pa.Table.from_pylist(rows, schema=PARTIALS.schema))
    newest = START + timedelta(seconds=19.9)
    common = {"source": "s", "ingested_at": newest, "ingest_date": newest.date(), "staleness_seconds": 0.0}
    samples: list[dict[str, Any]] = [
        {"sampled_at": newest, "broker": "nats", "queue": "orders", "depth": 100, "in_flight": 0, "prefetch": 40}
        | common
    ]
    for back, (state, latency) in enumerate([("running", 0.2), ("running", 0.4), ("blocked", None), ("running", 9.0)]):
        at = newest - timedelta(seconds=2 * back)
        told = {"sampled_at": at, "broker": "nats", "queue": OURS, "state": state, "publish_latency_seconds": latency}
        samples.append(told | common)
    samples.append({"sampled_at": newest, "broker": "nats", "queue": OURS} | common)  # the probe could not connect
    lake.append("queue_samples", pa.Table.from_pylist(samples, schema=QUEUE_SAMPLES.schema))
    reader = Reader(tmp_path)

    def query(sql: str) -> pa.Table:
        check(sql, {*VIEWS, *TABLES})
        return reader.query(sql)

    targets = [Target("nats", "orders", f"t{i}") for i in range(3)]
    now = newest + timedelta(seconds=1)
    signals = {"deliveries": 10.0, "publishing": 5.0, "work": 0.0}
    seen = observe.observe(query, targets, now, 5, signals=signals)
    t0, t1, t2 = (seen[target] for target in targets)
    assert (t0.attempts, t0.failures, t0.attempt_rate) == (100, 20, 10)
    assert (t1.attempts, t1.failures) == (90, 10)
    assert (t2.attempts, t2.failures, t2.attempt_rate) == (80, 0, 8)
    assert (t0.processing_seconds, t0.prefetch, t0.own_backlog) == (pytest.approx(0.1), 40, 40)
    assert t0.in_work == 0
    assert (t0.publishes, t0.publish_seconds) == (3, pytest.approx(0.3))
    assert t0.publish_errors == pytest.approx(1 / 3)
    late = observe.observe(query, targets, now + timedelta(seconds=20), 5, signals={"publishing": 5.0})
    assert late[targets[0]].publishes is None
    assert t0.publishes_probed
    # What applications tell of their publishes to a queue says more of it than a probe of the whole broker.
    told = [(0, 30, 3, 0.02), (1, 10, 0, 0.9), (2, 5, 5, None), (30, 900, 900, None)]
    samples = [
        {"sampled_at": newest - timedelta(seconds=back), "broker": "nats", "queue": "orders"}
        | {"publishes": count, "publish_errors": errors, "publish_latency_seconds": seconds}
        | common
        for back, count, errors, seconds in told
    ]
    lake.append("queue_samples", pa.Table.from_pylist(samples, schema=QUEUE_SAMPLES.schema))
    found = observe.observe(query, targets, now, 5, signals={"publishing": 5.0})[targets[0]]
    assert (found.publishes, found.publishes_probed, found.publish_seconds) == (45, False, pytest.approx(0.02))
    assert found.publish_errors == pytest.approx(8 / 45)
    assert PROBE == OURS


def test_two_laws_over_two_windows_look_over_the_longer_one(tmp_path: Path) -> None:
    def policy(name: str, every: float) -> PolicySettings:
        return PolicySettings(name=name, law="output_rate", options={"every_seconds": every}, mode="auto")

    world = World(finished=80, failed=20)
    asked: list[str] = []
    control = build(ControlSettings(policies=(policy("a", 5), policy("b", 8))), tmp_path / "lake", tmp_path / "state")

    def query(sql: str) -> pa.Table:
        asked.append(sql)
        return world.query(sql)

    for _ in range(2):
        control.controller.step(world.now, [world.evaluation("t0", actions=("a", "b"))], query)
        world.advance(1)
    control.close()
    assert sum("AS failed" in sql for sql in asked) == 2, "one statement a look, however many policies"
