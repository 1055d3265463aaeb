"""What every actuator promises, on its real server: validate, apply, verify, revert, and the end of leases."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest

from actuators.base import Actuator, Demand, Refused
from actuators.leased import Leased
from actuators.registry import KINDS, make
from actuators.undo_log import UndoLog
from lake.errors import SojournError
from tests.actuators.places import PASSWORD, PLACES, Place, end_shared, serving
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until

UNTIL = (datetime.now(UTC) + timedelta(hours=6)).replace(microsecond=0)
DEMAND = Demand("mq", "orders", "t0", 20.0, 20.0, UNTIL, "t0 is noisy", "a1")
OTHER = dataclasses.replace(DEMAND, rate=7.0, valid_until=UNTIL + timedelta(minutes=5), reason="mine", action_id="z9")
LONG = 1800.0


def test_the_suite_knows_every_kind() -> None:
    assert PLACES.keys() == KINDS.places.keys()


@pytest.fixture(scope="module", autouse=True)
def _servers() -> Iterator[None]:
    yield
    end_shared()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One kind's server for all of its tests."""
    with serving(request.param, tmp_path_factory.mktemp(request.param), OTHER) as found:
        yield found


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, RabbitServer.password)


@dataclasses.dataclass
class Applied:
    """An actuator with a undo_log whose clock the test sets."""

    actuator: Actuator
    leased: Leased
    undo_log: UndoLog
    clock: list[float]
    where: str


@pytest.fixture
def start(place: Place, tmp_path: Path) -> Iterator[Callable[..., Applied]]:
    """Sojourn's side; twice in one test is a restart."""
    started: list[Applied] = []

    def begin(**changes: Any) -> Applied:
        settings = KINDS.chosen({"name": "one", **place.settings, **changes})
        clock = [1000.0]
        undo_log = UndoLog(tmp_path / "state", lambda: clock[0])
        actuator = make(settings)
        undo_log.remember(settings)
        started.append(Applied(actuator, Leased("one", actuator, undo_log), undo_log, clock, actuator.place(DEMAND)))
        return started[-1]

    yield begin
    for one in started:
        for held in one.undo_log.held():
            one.leased.end(held.place)
        one.undo_log.close()


def test_what_is_applied_stands_there_and_goes_again_with_what_was_before(place: Place, start: Any) -> None:
    one = start()
    assert one.actuator.read(one.where) == place.before
    outcome = one.leased.apply(DEMAND, LONG)
    assert (outcome.kind, outcome.before) == ("applied", place.before)
    assert (outcome.facts.get("slows") == "consumers") is one.actuator.slows_consumers
    assert one.actuator.read(one.where) == one.actuator.value(DEMAND) == outcome.after
    assert one.leased.end(one.where).kind == "reverted"
    assert one.actuator.read(one.where) == place.before
    assert one.undo_log.held() == [] and one.leased.end(one.where) is None


def test_what_is_renewed_or_changed_keeps_what_was_before_it(place: Place, start: Any) -> None:
    one = start()
    one.leased.apply(DEMAND, LONG)
    later = dataclasses.replace(DEMAND, rate=30.0, valid_until=UNTIL + timedelta(minutes=1))
    one.leased.apply(later, LONG)
    assert one.actuator.read(one.where) == one.actuator.value(later)
    one.leased.end(one.where)
    assert one.actuator.read(one.where) == place.before


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_of_nothing_or_less_is_refused_and_changes_nothing(place: Place, start: Any, rate: float) -> None:
    one = start()
    with pytest.raises(Refused, match="is none"):
        one.leased.apply(dataclasses.replace(DEMAND, rate=rate), LONG)
    assert one.actuator.read(one.where) == place.before and one.undo_log.held() == []


def test_a_change_that_is_refused_says_why_and_leaves_nothing_behind(place: Place, start: Any) -> None:
    one = start(**place.refused)
    with pytest.raises(SojournError) as raised:
        one.leased.apply(DEMAND, LONG)
    assert str(raised.value)
    assert one.leased.reap() == ([], [])
    assert one.undo_log.held() == []


def test_what_somebody_else_sets_meanwhile_is_not_overwritten(place: Place, start: Any) -> None:
    one = start()
    one.leased.apply(DEMAND, LONG)
    place.meddle(one.actuator, one.where)
    his = one.actuator.read(one.where)
    assert his not in (None, place.before, one.actuator.value(DEMAND))
    outcome = one.leased.end(one.where)
    assert outcome.kind == "yielded" and "somebody else" in outcome.said
    assert one.actuator.read(one.where) == his
    one.actuator.write(one.where, place.before, 0.0)


def test_a_limit_is_not_renewed_over_what_somebody_else_has_set(place: Place, start: Any) -> None:
    one = start()
    one.leased.apply(DEMAND, LONG)
    place.meddle(one.actuator, one.where)
    his = one.actuator.read(one.where)
    with pytest.raises(Refused, match="somebody else"):
        one.leased.apply(dataclasses.replace(DEMAND, rate=5.0, valid_until=UNTIL - timedelta(minutes=9)), LONG)
    assert one.actuator.read(one.where) == his and one.undo_log.held() == []
    one.actuator.write(one.where, place.before, 0.0)


def test_a_lease_that_is_over_is_ended_after_a_restart(place: Place, start: Any) -> None:
    one = start()
    one.leased.apply(DEMAND, LONG)
    again = start()
    assert again.leased.reap() == ([], [])
    again.clock[0] += LONG + 1
    (outcome,), failed = again.leased.reap()
    assert failed == [] and outcome.kind == "reverted"
    assert again.actuator.read(again.where) == place.before
    (told,) = again.undo_log.news("one")
    assert (told.place, told.demand, told.kind) == (again.where, DEMAND, "reverted")
    assert again.undo_log.news("one") == [], "told once"


def test_after_a_start_of_the_machine_nothing_of_the_time_before_holds(place: Place, start: Any) -> None:
    one = start()
    one.leased.apply(DEMAND, LONG)
    undo_log = UndoLog(one.undo_log.folder, lambda: 3.0, lambda: "another start")
    (outcome,), _ = Leased("one", one.actuator, undo_log).reap()
    assert outcome.kind == "reverted" and one.actuator.read(one.where) == place.before
    undo_log.close()


_CHILD = """
import os, signal, sys
from pathlib import Path
from actuators import reaper
from actuators.base import Demand
from actuators.leased import Leased
from actuators.undo_log import UndoLog
from actuators.registry import make, parsed

folder, settings, demand = Path(sys.argv[1]), parsed(sys.argv[2]), Demand.of(sys.argv[3])
undo_log = UndoLog(folder)
undo_log.remember(settings)
Leased(settings.name, make(settings), undo_log).apply(demand, float(sys.argv[4]))
reaper.ensure(folder)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_reaper_ends_what_its_lease_outlived_though_whoever_applied_it_was_killed(
    place: Place, tmp_path: Path
) -> None:
    settings = KINDS.chosen({"name": "one", **place.settings})
    arguments = [str(tmp_path / "state"), settings.model_dump_json(), DEMAND.document(), "1"]
    child = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, text=True, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr
    undo_log, actuator = UndoLog(tmp_path / "state"), make(settings)
    where = actuator.place(DEMAND)
    wait_until(lambda: not undo_log.held(), "the reaper to end it", seconds=30)
    assert actuator.read(where) == place.before
    undo_log.close()


def test_a_server_that_is_away_is_said_so_and_what_is_overdue_is_ended_once_it_is_back(
    place: Place, start: Any
) -> None:
    if place.server is None or not place.quick:
        pytest.skip("there is no server, or one that takes long to start")
    one, server = start(), place.away or place.server
    one.leased.apply(DEMAND, 5.0)
    server.stop()
    one.clock[0] += 10
    try:
        outcomes, (failed,) = one.leased.reap()
        assert outcomes == [] and one.where in failed
        with pytest.raises(SojournError):
            one.leased.apply(DEMAND, 5.0)
        assert len(one.undo_log.held()) == 1
    finally:
        server.start()
    one.clock[0] += 10
    wait_until(lambda: one.leased.reap() and not one.undo_log.held(), "it to be ended", seconds=60)
    assert one.actuator.read(one.where) == place.before


@pytest.mark.parametrize(
    ("settings", "consumers"),
    [
        ({"kind": "nats_pause", "consumer": "{tenant}"}, True),
        ({"kind": "nats_max_ack_pending", "consumer": "{tenant}", "service_seconds": 0.2}, True),
        ({"kind": "kafka_quota", "entity_user": "{tenant}", "message_bytes": 1.0, "quota": "consumer_byte_rate"}, True),
        ({"kind": "kafka_quota", "entity_user": "{tenant}", "message_bytes": 1.0}, False),
        ({"kind": "file", "path": "limits.json"}, False),
        ({"kind": "nats_kv"}, False),
    ],
    ids=str,
)
def test_an_actuator_knows_whether_what_it_holds_back_waits_in_the_queue(
    settings: dict[str, Any], consumers: bool
) -> None:
    assert make(KINDS.chosen({"name": "x"} | settings)).slows_consumers is consumers


def test_settings_go_to_the_reaper_and_come_back_without_secrets(place: Place) -> None:
    settings = KINDS.chosen({"name": "one", **place.settings})
    document = settings.model_dump_json()
    assert KINDS.chosen(json.loads(document)) == settings


def _publish(server: RabbitServer, bodies: range) -> None:
    with server.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "jobs.t0", str(body).encode(), pika.BasicProperties(headers={"tenant": "t0"}))


def _lengths(server: RabbitServer) -> tuple[int, int]:
    with server.connect() as connection:
        found = [connection.channel().queue_declare(name, passive=True) for name in ("jobs.t0", "jobs.t0-aside")]
        return found[0].method.message_count, found[1].method.message_count


def _taken(server: RabbitServer) -> list[tuple[int, dict[str, Any]]]:
    with server.connect() as connection:
        channel, found = connection.channel(), []
        while (one := channel.basic_get("jobs.t0", auto_ack=True))[0] is not None:
            found.append((int(one[2]), one[1].headers))
        return found


@pytest.fixture
def shovels(place: Place) -> RabbitServer:
    if place.settings["kind"] != "rabbitmq_shovel":
        pytest.skip("others have no shovels")
    assert isinstance(place.server, RabbitServer)
    return place.server


def test_a_shovel_carries_aside_what_is_there_and_comes_and_all_is_back_at_the_end(
    shovels: RabbitServer, start: Any
) -> None:
    one = start()
    _publish(shovels, range(50))
    one.leased.apply(DEMAND, LONG)
    _publish(shovels, range(50, 60))
    wait_until(lambda: _lengths(shovels) == (0, 60), "all to be aside", seconds=60)
    assert one.leased.end(one.where).kind == "reverted"
    wait_until(lambda: _lengths(shovels) == (60, 0), "all to be back", seconds=60)
    wait_until(lambda: shovels.api("GET", "shovels") == [], "no shovel to be left", seconds=60)
    found = _taken(shovels)
    assert sorted(body for body, _ in found) == list(range(60))
    assert all(headers["tenant"] == "t0" and headers["x-shovelled"] for _, headers in found)


def test_what_a_shovel_carried_aside_is_back_though_whoever_put_it_there_was_killed(
    shovels: RabbitServer, place: Place, tmp_path: Path
) -> None:
    _publish(shovels, range(20))
    settings = KINDS.chosen({"name": "one", **place.settings})
    arguments = [str(tmp_path / "state"), settings.model_dump_json(), DEMAND.document(), "2"]
    child = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, text=True, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr
    undo_log = UndoLog(tmp_path / "state")
    wait_until(lambda: not undo_log.held(), "the reaper to end it", seconds=60)
    undo_log.close()
    wait_until(lambda: _lengths(shovels) == (20, 0), "all to be back", seconds=60)
    assert sorted(body for body, _ in _taken(shovels)) == list(range(20))
