"""`GET /v1/capacity` and its metrics over real HTTP: what is advised, on fresh data alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from alerts.control import Control, build
from alerts.control.settings import CapacitySettings, ControlSettings
from lake.clock import Clock
from lake.errors import SojournError
from tests.control.conftest import World

Serve = Callable[..., Any]


class Scaled:
    """A control part whose advisor looks at the world."""

    def __init__(self, world: World, control: Control) -> None:
        self.world, self.control = world, control

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.advance(1)
            self.control.advisor.step(self.world.now, self.world.query)

    def told(self) -> tuple[int | None, str]:
        (one,) = self.control.advisor.capacities(self.world.now)
        return one.advice.consumers, one.advice.reason


@pytest.fixture
def start(world: World, tmp_path: Path) -> Iterator[Callable[..., Scaled]]:
    controls: list[Control] = []

    def make(token: str | None = None, **changes: Any) -> Scaled:
        one = CapacitySettings(**{"broker": "nats", "queue": "orders", "drain_seconds": 50} | changes)
        settings = ControlSettings(policies=(), capacity=(one,))
        clock = Clock(lambda: world.now, lambda: world.now.timestamp())
        controls.append(build(settings, tmp_path / "lake", tmp_path / "state", token=token, clock=clock))
        return Scaled(world, controls[-1])

    yield make
    for control in controls:
        control.close()


def test_what_a_queue_needs_is_served_with_its_interval_and_reason(start: Any, serve: Serve) -> None:
    scaled = start()
    scaled.run(1)
    with serve(scaled.control) as url:
        (queue,) = httpx.get(f"{url}/v1/capacity").json()["queues"]
        # 60 + 7 × 10 a second, and 520 + 7 × 2 to be gone in 50 s, at 0.1 s each
        assert queue["required_concurrency"] == pytest.approx((130 + 534 / 50) * 0.1)
        assert queue["advised_consumers"] == 15 and queue["consumers"] == 8 and queue["per_consumer"] == 1
        low, high = queue["interval"]
        assert low < queue["required_concurrency"] < high
        assert "130/s + 534 ÷ 50 s" in queue["reason"]
        assert httpx.get(f"{url}/v1/capacity?queue=bills").json()["queues"] == []
        assert len(httpx.get(f"{url}/v1/capacity?queue=bills&queue=orders&broker=nats").json()["queues"]) == 1


def test_prometheus_reads_the_same_and_the_unknown_has_no_sample(start: Any, serve: Serve) -> None:
    scaled = start()
    scaled.run(1)

    def samples(url: str) -> dict[str, float]:
        families = text_string_to_metric_families(httpx.get(f"{url}/v1/capacity/metrics").text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    with serve(scaled.control) as url:
        found = samples(url)
        assert found["sojourn_capacity_advised_consumers"] == 15 and found["sojourn_capacity_consumers"] == 8
        low, value, high = (found[f"sojourn_capacity_required_concurrency{bound}"] for bound in ("_low", "", "_high"))
        assert low < value < high
        scaled.world.coverage = 0.3
        scaled.run(5)
        assert samples(url) == {}


def test_who_brings_no_token_is_told_nothing(start: Any, serve: Serve) -> None:
    with serve(start(token="secret").control) as url:
        for path in ("/v1/capacity", "/v1/capacity/metrics"):
            assert httpx.get(url + path).status_code == 401
            assert httpx.get(url + path, headers={"Authorization": "Bearer secret"}).status_code == 200
            assert httpx.post(url + path, headers={"Authorization": "Bearer secret"}).status_code == 405


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"lag": timedelta(minutes=2)}, "120 s old"),
        ({"lag": timedelta(minutes=-2)}, "-120 s old"),
        ({"coverage": 0.5}, "events show 50%"),
        ({"service_seconds": None}, "not known"),
    ],
)
def test_nothing_is_advised_on_data_that_cannot_be_trusted(start: Any, change: dict[str, Any], why: str) -> None:
    scaled = start()
    scaled.run(1)
    for name, value in change.items():
        setattr(scaled.world, name, value)
    scaled.run(5)
    consumers, reason = scaled.told()
    assert consumers is None and why in reason


def test_an_answer_that_nobody_renews_ends(start: Any) -> None:
    scaled = start()
    scaled.run(1)
    scaled.world.fails = SojournError("no lake")
    scaled.run(20)
    assert scaled.told()[0] == 15
    scaled.run(20)
    assert scaled.told() == (None, "nothing was seen lately")


def test_a_queue_that_nobody_collects_is_unknown(start: Any) -> None:
    scaled = start(queue="bills")
    scaled.run(1)
    assert scaled.told() == (None, "the metrics know no events of this queue")


def test_it_refuses_more_consumers_once_more_brought_nothing(start: Any) -> None:
    scaled = start()
    scaled.run(130)  # 80/s with 8 of them
    assert scaled.told()[0] == 15
    scaled.world.consumers = 15
    scaled.run(130)  # 80/s with 15, too: work takes longer, and the formula asks for more
    scaled.world.service_seconds = 0.19
    scaled.run(5)
    consumers, reason = scaled.told()
    assert consumers == 15 and "throughput stopped rising: 8 consumers finished 80/s, 15 finished 80/s" in reason


def test_no_queue_asks_nothing_and_two_of_one_place_are_refused(world: World, tmp_path: Path) -> None:
    control = build(ControlSettings(policies=()), tmp_path / "lake", tmp_path / "state")
    control.advisor.step(world.now, world.query)
    assert world.queries == 0
    control.close()
    one = {"broker": "nats", "queue": "orders"}
    with pytest.raises(ValidationError, match="two of capacity are for nats/orders"):
        ControlSettings(capacity=(one, one))  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="partitions"):
        CapacitySettings(**one, fewest=9, partitions=4)  # type: ignore[arg-type]
