"""``sojourn.Limits`` reads what actuators write into mirrors on real servers, and fails open as with the limits API."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sojourn
from actuators.base import Demand
from actuators.leased import Leased
from actuators.registry import KINDS, make
from actuators.undo_log import UndoLog
from sojourn.client import limits as polling
from sojourn.client.mirrors.file import FileMirror
from sojourn.client.mirrors.nats import _seconds
from sojourn.client.wire import MalformedAnswer
from tests.actuators.places import PLACES, Place, end_shared
from tests.support.moved_clock import Clock
from tests.support.waiting import wait_until

DEMAND = Demand("mq", "orders/new", "grove & co", 20.0, 20.0, datetime(2030, 1, 1, tzinfo=UTC), "noisy", "a1")
KEY = ("orders/new", "grove & co")
MIRRORS = ("file", "redis_key", "nats_kv", "kafka_topic")


@pytest.fixture(scope="module", params=MIRRORS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One mirror's server for all of its tests."""
    found = PLACES[request.param](tmp_path_factory.mktemp(request.param) / "server", DEMAND)
    yield found
    if found.server is not None and not found.shared:
        found.server.stop()
    end_shared()


@pytest.fixture
def leased(place: Place, tmp_path: Path) -> Iterator[Leased]:
    """Sojourn's side."""
    settings = KINDS.chosen({"name": "one", **place.settings})
    undo_log = UndoLog(tmp_path / "state")
    undo_log.remember(settings)
    one = Leased("one", make(settings), undo_log)
    yield one
    for held in undo_log.held():
        one.end(held.place)
    undo_log.close()


@pytest.fixture
def limits(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., sojourn.Limits]]:
    """The application's side."""
    monkeypatch.setattr(polling, "MAX_BACKOFF", 0.5)
    opened: list[sojourn.Limits] = []

    def make(**options: Any) -> sojourn.Limits:
        opened.append(sojourn.Limits(url_of(place), **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def url_of(place: Place) -> str:
    settings = place.settings
    return {
        "file": lambda: f"file://{settings['path']}",
        "redis_key": lambda: str(settings["url"]),
        "nats_kv": lambda: str(settings["url"]),
        "kafka_topic": lambda: f"kafka://{settings['bootstrap']}/sojourn-limits",
    }[settings["kind"]]()


def lasting(seconds: float, **changes: Any) -> Demand:
    return dataclasses.replace(DEMAND, valid_until=datetime.now(UTC) + timedelta(seconds=seconds), **changes)


def rates(limits: sojourn.Limits) -> dict[tuple[str, str], float]:
    return limits.in_force()


def test_what_an_actuator_puts_there_is_obeyed_changed_and_lifted(leased: Leased, limits: Any) -> None:
    leased.apply(lasting(600), 600)
    client = limits()
    wait_until(lambda: rates(client) == {KEY: 20.0}, "the limit that was there before")
    leased.apply(lasting(600, tenant="b"), 600)
    wait_until(lambda: rates(client) == {KEY: 20.0, (KEY[0], "b"): 20.0}, "one that is new")
    leased.apply(lasting(600, rate=5.0), 600)
    wait_until(lambda: rates(client)[KEY] == 5.0, "a stricter one")
    decision = [client.try_acquire(*KEY) for _ in range(40)][-1]
    assert not decision and decision.reason == "noisy"
    assert client.try_acquire(KEY[0], "quiet")
    leased.end(leased.validate(DEMAND)[0])
    wait_until(lambda: rates(client) == {(KEY[0], "b"): 20.0}, "it to be lifted")
    assert client.try_acquire(*KEY)


def test_a_lease_ends_though_nobody_lifts_it(place: Place, leased: Leased, limits: Any) -> None:
    if place.server is not None and place.quick:
        pytest.skip("shown with its server away")
    leased.apply(lasting(4), 4)
    early, late = limits(), limits(broker="mq", queues=[KEY[0]])
    wait_until(lambda: rates(early) and rates(late), "the limit")
    wait_until(lambda: not rates(early) and not rates(late), "the end of its lease")
    assert early.try_acquire(*KEY)


def test_what_concerns_others_is_left_out(leased: Leased, limits: Any) -> None:
    leased.apply(lasting(600), 600)
    leased.apply(lasting(600, queue="bills"), 600)
    client = limits(broker="mq", queues=["bills"])
    wait_until(lambda: rates(client) == {("bills", KEY[1]): 20.0}, "its queue's limit alone")
    assert rates(limits(broker="another")) == {}


def test_nonsense_beside_it_hides_no_limit(place: Place, leased: Leased, limits: Any) -> None:
    leased.apply(lasting(600), 600)
    client = limits()
    wait_until(lambda: rates(client) == {KEY: 20.0}, "the limit")
    mess_up(place)
    if place.settings["kind"] == "file":  # is believed whole or not at all
        wait_until(lambda: client.counters()["malformed"] > 0, "the nonsense to be seen")
        Path(place.settings["path"]).unlink()
    else:
        leased.apply(lasting(600, tenant="b"), 600)
        wait_until(lambda: (KEY[0], "b") in rates(client), "the one after the nonsense")
        assert rates(client).keys() == {KEY, (KEY[0], "b")}


def mess_up(place: Place) -> None:
    """What no actuator of ours wrote, where limits are expected."""
    kind, bad = (
        place.settings["kind"],
        {"broker": "mq", "queue": "orders/new", "tenant": "x", "rate": -1, "burst": "many"},
    )
    actuator = make(KINDS.chosen({"name": "one", **place.settings}))
    if kind == "file":
        Path(place.settings["path"]).write_text(json.dumps({"limits": [bad]}))
        return
    for number, value in enumerate(["{", "[]", "null", json.dumps(bad), "\ud800" * 3]):
        where = actuator.place(dataclasses.replace(DEMAND, tenant=f"bad{number}"))
        actuator.write(where, value.encode("utf-8", "replace").decode(), 600)


def test_a_server_that_is_away_limits_nobody_for_longer_than_the_lease(
    place: Place, leased: Leased, limits: Any
) -> None:
    if place.server is None or not place.quick:
        pytest.skip("there is no server, or one that takes long to start")
    leased.apply(lasting(6), 6)
    client = limits()
    wait_until(lambda: rates(client) == {KEY: 20.0}, "the limit")
    place.server.stop()
    try:
        wait_until(lambda: client.counters()["unreachable"] > 0, "it to be noticed")
        wait_until(lambda: not rates(client), "the end of its lease")
        assert client.try_acquire(*KEY)
    finally:
        place.server.start()
    leased.apply(lasting(600, tenant="later"), 600)
    wait_until(lambda: (KEY[0], "later") in rates(client), "what came after")


def test_a_process_that_forks_goes_on_by_itself(leased: Leased, limits: Any) -> None:
    leased.apply(lasting(600), 600)
    client = limits()
    wait_until(lambda: rates(client) == {KEY: 20.0}, "the limit")
    leased_changed, told = lasting(600, rate=3.0), os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover – another process
        code = 1
        try:
            wait_until(lambda: rates(client).get(KEY) == 3.0, "the change")
            code = 0
        finally:
            os._exit(code)
    for end in told:
        os.close(end)
    leased.apply(leased_changed, 600)
    wait_until(lambda: rates(client).get(KEY) == 3.0, "the change, in the parent")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_addresses_that_name_nothing_are_refused_at_once() -> None:
    for url in ("file://elsewhere/limits.json", "file:", "redis:///0", "nats://", "kafka://", "ftp://host/x", "orders"):
        with pytest.raises(ValueError, match=r"names no|not an http"):
            sojourn.Limits(url)
    with pytest.raises(ValueError, match="token"):
        sojourn.Limits("file:///tmp/none.json", token="secret")


def file_of(path: Path, *, valid_for: float) -> None:
    until = datetime.fromtimestamp(time.time() + valid_for, UTC)
    path.write_text(json.dumps({"limits": [json.loads(dataclasses.replace(DEMAND, valid_until=until).document())]}))


@pytest.mark.parametrize("off", [-7200.0, 7200.0])
def test_a_clock_that_was_set_lengthens_no_lease_of_a_file(tmp_path: Path, off: float) -> None:
    path, clock = tmp_path / "limits.json", Clock()
    file_of(path, valid_for=60 + off)
    os.utime(path, (time.time() + off, time.time() + off))  # written by a clock that has been set since
    source = FileMirror(path).source(clock)
    answer = source.poll()
    assert answer.update is not None
    (limit,) = answer.update.limits
    assert limit.lease_seconds == pytest.approx(60, abs=1)
    assert answer.said_at <= clock.now, "and it is over at once where it seems to be old"
    assert source.poll().update is None, "no news"


def test_a_file_that_changes_tells_leases_from_the_last_look_at_the_earliest(tmp_path: Path) -> None:
    path, clock = tmp_path / "limits.json", Clock()
    source = FileMirror(path).source(clock)
    first = source.poll().update
    assert first is not None and first.whole and not first.limits, "no file, no limits"
    clock.now += 0.5
    file_of(path, valid_for=60)
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    answer = source.poll()
    assert answer.said_at == pytest.approx(clock.now - 0.5)
    path.write_text("[")
    with pytest.raises(MalformedAnswer):
        source.poll()
    assert source.poll().update is None, "told once"
    path.unlink()
    gone = source.poll().update
    assert gone is not None and gone.whole


def test_times_to_live_are_read_in_each_form() -> None:
    assert [_seconds(text) for text in ("90", "90s", "1m30s", "1h", "1.5s")] == [90, 90, 90, 3600, 1.5]
    for text in ("", "never", "s"):
        with pytest.raises(ValueError, match="could not convert"):
            _seconds(text)


_SKEWED = """
import sys, time

real, off = time.time, float(sys.argv[2])
time.time = lambda: real() + off  # before anybody else has it

import sojourn

def wait(what):
    ends = time.monotonic() + 90
    while not what():
        if time.monotonic() > ends:
            sys.exit("it did not happen")
        time.sleep(0.02)

with sojourn.Limits(sys.argv[1]) as early:
    wait(lambda: early.counters()["polls"] > 1)
    print("looks", flush=True)
    wait(early.in_force)
    with sojourn.Limits(sys.argv[1]) as late:
        wait(lambda: late.counters()["polls"] > 1 and not late.in_force() and not early.in_force())
        assert all(limits.try_acquire(*sys.argv[3:5]) for limits in (early, late) for _ in range(100))
"""


@pytest.mark.parametrize("off", [-7200, 7200])
def test_a_clock_hours_away_from_the_publishers_is_held_and_no_longer_than_the_lease(
    place: Place, leased: Leased, off: int
) -> None:
    command = [sys.executable, "-c", _SKEWED, url_of(place), str(off), *KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        first = child.stdout.readline()
        leased.apply(lasting(6), 6)
        assert (child.wait(timeout=120), first) == (0, "looks\n"), child.stderr.read()
