"""What goes wrong around a limit, on the real server of each actuator, and with producers on a real broker."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import sojourn
from actuators.base import Demand
from actuators.registry import KINDS
from actuators.registry import make as make_actuator
from alerts.control import build
from alerts.control.actuators.remote import Remote
from alerts.control.settings import ControlSettings
from lake.clock import Clock
from lake.store import Lake
from sojourn.client import limits as polling
from tests.actuators.places import PASSWORD, PLACES, Place, end_shared, serving
from tests.actuators.test_bad_servers import NONSENSE, bad_server
from tests.client.places import NOWHERE
from tests.control.conftest import POLICY, Loop, World
from tests.control.producers import ASKS, Producers
from tests.support.deep import CHOSEN
from tests.support.nats import NatsServer
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until

OTHER = Demand("nats", "orders", "t0", 7.0, 7.0, datetime(2030, 1, 1, tzinfo=UTC), "mine", "z9")
COMMON: dict[str, Any] = {"mode": "auto", "target_seconds": 10, "lease_seconds": 600}


@pytest.fixture(scope="module", autouse=True)
def _servers() -> Iterator[None]:
    yield
    end_shared()


@pytest.fixture(scope="module", params=[*PLACES] if CHOSEN.deep else ["redis_key", "rabbitmq_policy"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One kind's server for all of its tests."""
    with serving(request.param, tmp_path_factory.mktemp(request.param), OTHER) as found:
        yield found


@pytest.fixture
def through(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Loop]]:
    """A controller whose policies act through the server of ``place``, however long that takes."""
    monkeypatch.setenv(PASSWORD, RabbitServer.password)
    defaults: Any = Remote.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "patience", 60.0)
    opened: list[Loop] = []

    def make(*policies: dict[str, Any]) -> Loop:
        own = {"name": "one", **place.settings}
        document = {"policies": [{"actuator": "one", **COMMON, **one} for one in policies], "actuators": [own]}
        world = World(now=datetime.now(UTC))
        clock = Clock(lambda: world.now, lambda: world.now.timestamp())
        settings = ControlSettings.model_validate(document)
        control = build(settings, tmp_path / "lake", tmp_path / "state", clock=clock)
        opened.append(Loop(world, control, Lake(tmp_path / "lake")))
        return opened[-1]

    yield make
    for loop in opened:
        loop.control.controller.pause(loop.world.now)
        loop.control.close()


def there(place: Place) -> str | None:
    """What the server has where the limit of t0 stands."""
    actuator = make_actuator(KINDS.chosen({"name": "one", **place.settings}))
    return actuator.read(actuator.place(OTHER))


def test_of_two_policies_on_one_scope_the_server_has_the_stricter_and_then_the_one_that_is_left(
    place: Place, through: Callable[..., Loop]
) -> None:
    fixed: dict[str, Any] = {"law": "rate_limit", "max_step": 1.0}
    loop = through({"name": "lax", "rate": 50, **fixed}, {"name": "strict", "rate": 20, "lease_seconds": 300, **fixed})

    def held() -> float:
        (one,) = loop.control.undo_log.held()
        assert there(place) == one.after != place.before
        return one.demand.rate

    for _ in range(2):
        loop.step("t0", actions=("lax", "strict"))
        loop.world.advance(1)
    assert held() == 20.0
    assert all("strict's 20/s counts now: it is stricter" in row["reason"] for row in loop.journal())
    loop.world.advance(310)  # longer than its lease, which no slow machine outlives
    loop.control.controller.step(loop.world.now, [], loop.world.query)
    assert held() == 50.0
    loop.control.controller.pause(loop.world.now)
    assert there(place) == place.before and loop.control.undo_log.held() == []


def test_a_signal_that_comes_and_goes_changes_the_setting_no_faster_than_the_cooldown(
    place: Place, through: Callable[..., Loop]
) -> None:
    loop, seconds, seen = through({"name": "fair-share", "max_step": 0.5, "cooldown_seconds": 5}), 20, []
    for second in range(seconds):
        loop.world.advance(1)
        loop.step(*(["t0"] if second // 2 % 2 == 0 else []))
        seen.append(there(place))
    first = next(number for number, value in enumerate(seen) if value != place.before)
    assert place.before not in seen[first:], "it stands through each pause of the signal"
    changes = sum(before != after for before, after in itertools.pairwise(seen))
    assert changes <= seconds / POLICY["cooldown_seconds"] + 1
    assert len({row["action_id"] for row in loop.journal() if row["outcome"] == "applied"}) == 1, "one action, not many"
    loop.world.calm()
    for _ in range(60):
        loop.world.advance(1)
        loop.step()
    assert there(place) == place.before, "it ends once the signal is quiet"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.mark.parametrize("answer", ["unreachable", "silent", *NONSENSE])
def test_a_limits_api_that_is_of_no_use_keeps_no_message_from_the_broker(nats: NatsServer, answer: str) -> None:
    with bad_server(NONSENSE.get(answer)) as port:
        url = NOWHERE if answer == "unreachable" else f"http://127.0.0.1:{port}"
        with sojourn.Limits(url, broker="nats") as limits, Producers(nats, limits) as producers:
            wait_until(lambda: producers.number("t0") > ASKS and producers.number("t1") > 5, "what is sent to arrive")
            assert limits.in_force() == {} and limits.counters()["granted"] == 0


_SERVING = """
import sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from alerts.control import build
from alerts.control.board import ServedLimit
from alerts.control.settings import ControlSettings
from tests.control.conftest import serving

folder = Path(sys.argv[1])
control = build(ControlSettings(), folder / "lake", folder / "state")
until = datetime.now(UTC) + timedelta(seconds=float(sys.argv[2]))
control.board.publish((ServedLimit("nats", "orders", "t0", 5.0, 5.0, until, "noisy", "a1"),))
with serving(control) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def test_producers_that_a_killed_sojourn_held_send_on_when_the_lease_is_over(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.5)
    command = [sys.executable, "-c", _SERVING, str(tmp_path), "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        with sojourn.Limits(url, broker="nats") as limits:
            wait_until(lambda: limits.in_force() == {("orders", "t0"): 5.0}, "the limit")
            with Producers(nats, limits) as producers:
                wait_until(lambda: limits.counters()["granted"] > 0, "somebody to be held")
                child.send_signal(signal.SIGKILL)
                child.wait()
                wait_until(lambda: limits.counters()["unreachable"] > 0, "it to be noticed")
                assert limits.in_force() == {("orders", "t0"): 5.0}, "what was granted holds to its end"
                wait_until(lambda: limits.in_force() == {}, "the end of the lease", seconds=60)
                sent, held = producers.number("t0"), limits.counters()["granted"]
                wait_until(lambda: producers.number("t0") > sent + ASKS, "all that is sent to arrive")
                assert limits.counters()["granted"] <= held + 1, "nobody is held any more"
