"""Standing entitlements in the control part: told always, binding only while the queue is congested, on fresh data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.control import Control, build
from alerts.control.board import Congestion, Entitlement
from alerts.control.entitler import look
from alerts.control.settings import ControlSettings, EntitlementSettings
from lake.clock import Clock
from lake.errors import SojournError
from lake.store import Lake
from tests.control.conftest import World

SECOND = timedelta(seconds=1)
Start = Callable[..., "Watched"]


class Watched:
    """A control part whose entitler looks at the world once a second."""

    def __init__(self, world: World, control: Control, lake: Lake) -> None:
        self.world, self.control, self.lake = world, control, lake

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.advance(1)
            self.control.entitler.step(self.world.now, self.world.query)

    @property
    def congested(self) -> list[Congestion]:
        items = self.control.board.snapshot.items.values()
        return [item for item in items if isinstance(item, Congestion) and item.valid_until > self.world.now]

    @property
    def entitled(self) -> dict[str, float]:
        items = self.control.board.snapshot.items.values()
        return {item.tenant: item.rate for item in items if isinstance(item, Entitlement)}

    def journal(self) -> list[tuple[str, str | None, str]]:
        self.control.controller.step(self.world.now, [], self.world.query)
        rows = sorted(self.lake.read("actions").to_pylist(), key=lambda row: row["at"])
        return [(row["decision"], row["tenant"], row["policy"]) for row in rows]


@pytest.fixture
def start(world: World, tmp_path: Path) -> Iterator[Start]:
    controls: list[Control] = []

    def make(*tenants: dict[str, Any], queue: str = "orders") -> Watched:
        settings = ControlSettings(
            policies=(),
            entitlements=tuple(EntitlementSettings(broker="nats", queue=queue, **one) for one in tenants or ({},)),
        )
        clock = Clock(lambda: world.now, lambda: world.now.timestamp())
        controls.append(build(settings, tmp_path / "lake", tmp_path / "state", clock=clock))
        return Watched(world, controls[-1], Lake(tmp_path / "lake"))

    yield make
    for control in controls:
        control.close()


def test_a_queue_that_is_behind_is_congested_until_nothing_waits_and_nobody_is_held_back(start: Start) -> None:
    watched = start()
    watched.world.calm()
    watched.run(5)
    assert watched.congested == [] and watched.journal() == []
    watched.world.noisy_rate, watched.world.backlog = 120, 520
    watched.run(2)
    (congestion,) = watched.congested
    assert (congestion.broker, congestion.queue) == ("nats", "orders") and "behind" in congestion.reason
    assert watched.entitled["t0"] == pytest.approx(10, rel=0.5), "the others ask for 70 of 80/s"
    watched.world.calm(noisy_rate=11)
    watched.run(5)
    assert watched.congested, "not calm for long enough"
    watched.run(10)
    assert watched.congested == []
    assert watched.journal() == [("throttle", None, "entitlements"), ("release", None, "entitlements")]


def test_rates_that_are_configured_count_and_others_are_learnt(start: Start) -> None:
    watched = start({"tenant": "t0", "rate": 33.0}, {"tenant": "*"})
    watched.run(2)
    assert watched.entitled["t0"] == 33.0
    assert 1 <= watched.entitled["*"] < 20 and watched.entitled["t1"] >= 5


def test_a_share_is_of_the_consumers_time_where_it_is_known_what_work_takes(start: Start) -> None:
    watched = start()
    watched.world.work = {"t0": 2.0}  # 0.1 s for all others: 27 s of work a second, of which they need 7
    watched.run(40)
    assert watched.congested
    assert watched.entitled["t0"] < 5, "half of the time drains what waits"
    assert watched.entitled["t1"] >= 10, "who asks for little is not held back"


def test_forty_names_that_begin_together_are_held_as_one_and_named(start: Start) -> None:
    watched = start()
    watched.world.calm()
    watched.world.finished = 15
    watched.run(30)
    watched.world.backlog, watched.world.more = 300, {f"sybil-{n}": 3 for n in range(40)}
    watched.run(3)
    (congestion,) = watched.congested
    assert "held as one: sybil-… (began together)" in congestion.reason
    together = sum(rate for name, rate in watched.entitled.items() if name.startswith("sybil-"))
    assert together < 60 and watched.entitled["t1"] >= 10


def test_a_declared_group_is_entitled_as_one_tenant(start: Start) -> None:
    watched = start({"tenant": "acme-*"}, {"tenant": "*"})
    watched.world.calm()
    watched.world.finished = 15
    watched.run(2)
    watched.world.backlog, watched.world.more = 300, {f"acme-{n}": 12 for n in range(10)}
    watched.run(4)
    assert watched.congested
    assert not [name for name in watched.entitled if name.startswith("acme-") and name != "acme-*"]
    assert watched.entitled["acme-*"] < 60 and watched.entitled["t1"] >= 10


@pytest.mark.parametrize("further", [0.0, 0.3, 0.6, 1.2], ids="{} s".format)
def test_rates_are_counted_over_the_seconds_that_are_there(world: World, further: float) -> None:
    """Counts may be further than what waits: taken as if they were not, a queue could do up to twice what it can."""
    world.further = timedelta(seconds=further)
    for _ in range(10):
        world.advance(0.1)
        one = look(world.query, [("nats", "orders")], world.now)["nats", "orders"]
        assert one.arrivals["t0"] == pytest.approx(120, rel=0.01)
        assert sum(one.finished.values()) == pytest.approx(80, rel=0.01)
        assert one.end == (world.now - world.lag + world.further)


def test_what_is_remembered_in_messages_is_not_taken_for_seconds_of_work(start: Start) -> None:
    watched = start()
    watched.run(5)
    assert watched.congested
    before = watched.entitled["t0"]
    watched.world.work = {}
    watched.run(3)
    assert watched.entitled["t0"] == pytest.approx(before, rel=0.2), "all cost the same"


@pytest.mark.parametrize(
    "change",
    [{"lag": timedelta(minutes=1)}, {"lag": timedelta(minutes=-1)}, {"fails": SojournError("no lake")}],
    ids=["stale", "from the future", "unreadable"],
)
def test_what_cannot_be_seen_binds_nobody_and_ends_with_its_lease(start: Start, change: dict[str, Any]) -> None:
    watched = start()
    watched.run(4)
    assert watched.congested
    for name, value in change.items():
        setattr(watched.world, name, value)
    watched.run(5)
    assert watched.congested, "its lease runs on"
    watched.run(10)
    assert watched.congested == []
    assert [decision for decision, _, _ in watched.journal()] == ["throttle", "release"]


def test_the_kill_switch_ends_it_at_once(start: Start) -> None:
    watched = start()
    watched.run(2)
    watched.control.controller.pause(watched.world.now)
    watched.run(1)
    assert watched.congested == []
    watched.control.controller.resume()
    watched.run(1)
    assert watched.congested


def test_another_queue_is_not_touched_and_without_entitlements_nothing_is_asked(start: Start, world: World) -> None:
    watched = start(queue="bills")
    watched.run(3)
    assert watched.congested == [] and watched.entitled == {}
    control = build(ControlSettings(policies=()), watched.lake.root, watched.lake.root / "other")
    before = world.queries
    control.entitler.step(world.now, world.query)
    assert world.queries == before
    control.close()


def test_small_changes_of_a_rate_wake_nobody(start: Start) -> None:
    watched = start({"tenant": "t0", "rate": 33.0})
    watched.world.calm()
    watched.run(3)
    version = watched.control.board.snapshot.version
    for rate in (10, 11, 10, 9, 10):
        watched.world.noisy_rate = rate
        watched.run(1)
    assert watched.control.board.snapshot.version == version


def test_a_congestion_that_lasts_is_renewed_at_half_of_its_lease(start: Start) -> None:
    watched = start({"tenant": "t0", "rate": 33.0})
    watched.run(4)
    renewed = set()
    for _ in range(20):
        watched.run(1)
        (congestion,) = watched.congested
        renewed.add(congestion.valid_until)
    assert len(renewed) == 5


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="exit"):
        EntitlementSettings(broker="nats", queue="orders", enter_seconds=0.1, exit_seconds=1)
    twice = EntitlementSettings(broker="nats", queue="orders")
    with pytest.raises(ValidationError, match="two entitlements"):
        ControlSettings(entitlements=(twice, twice))
