"""What every mover promises, on its real server: order, messages untouched, nothing lost though it is killed."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actuators.base import Refused
from actuators.movers.base import TRACE, Message, Trace
from actuators.movers.registry import KINDS
from lake.errors import SojournError
from tests.actuators.movers.places import PLACES, Got, Place

NUMBERS = itertools.count()


def test_the_suite_knows_every_kind() -> None:
    assert PLACES.keys() == KINDS.places.keys()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = PLACES[request.param](tmp_path_factory.mktemp(request.param) / "server")
    yield found
    found.server.stop()


@pytest.fixture
def queue() -> str:
    return f"orders{next(NUMBERS)}"


def of(*tenants: str) -> Any:
    return lambda message: message.tenant in tenants


def mixed(*numbers: int) -> Got:
    return [(tenant, number) for number in numbers for tenant in ("a", "b")]


def seen(place: Place, queue: str) -> Got:
    return [(tenant, number) for tenant, number, _ in place.look(queue)]


def mover(place: Place) -> Any:
    return KINDS.make(KINDS.chosen({"name": "mq", **place.settings}))


def test_one_tenants_messages_go_aside_in_order_and_the_others_stay(place: Place, queue: str) -> None:
    place.send(queue, mixed(0, 1, 2, 3))
    moved = mover(place).move(queue, f"{queue}-aside", of("a"), 100, skip=1)
    assert moved.moved == 3
    assert seen(place, queue) == [("a", 0), *(("b", number) for number in range(4))]
    assert seen(place, f"{queue}-aside") == [("a", 1), ("a", 2), ("a", 3)]
    assert mover(place).waiting(f"{queue}-aside") == 3 and mover(place).waiting("nothing") == 0


def test_a_message_is_untouched_but_for_a_trace_of_its_move(place: Place, queue: str) -> None:
    place.send(queue, mixed(0))
    ((_, _, before),) = (one for one in place.look(queue) if one[0] == "a")
    mover(place).move(queue, f"{queue}-aside", of("a"), 10)
    ((tenant, number, after),) = place.look(f"{queue}-aside")
    assert (tenant, number) == ("a", 0)
    own = {name: value for name, value in after.items() if name != TRACE and not name.startswith("Nats-")}
    assert own == {name: value for name, value in before.items() if not name.startswith("Nats-")}
    if TRACE in after:
        trace = Trace.of(after[TRACE])
        assert trace is not None and trace.origin == queue
        assert {name: before[name] for name in trace.kept} == dict(trace.kept)


def test_what_goes_back_keeps_the_order_within_its_tenant(place: Place, queue: str) -> None:
    aside = f"{queue}-aside"
    place.send(queue, mixed(0, 1, 2))
    mover(place).move(queue, aside, of("a"), 100)
    if place.ordered:
        place.send(queue, [("a", 3), ("b", 3)])  # while older ones are aside
    assert mover(place).give_back(aside, queue, of("a"), 2).moved == 2
    back = [number for tenant, number in seen(place, queue) if tenant == "a"]
    assert len(back) == 2 if place.arbitrary else back == [0, 1]
    assert place.arbitrary or seen(place, aside)[0] == ("a", 2)
    while mover(place).give_back(aside, queue, of("a"), 2).moved:
        pass
    expected = [0, 1, 2, 3] if place.ordered else [0, 1, 2]
    assert [number for tenant, number in seen(place, queue) if tenant == "a"] == expected
    assert [number for tenant, number in seen(place, queue) if tenant == "b"] == expected
    assert seen(place, aside) == []


def test_what_was_kept_in_the_queue_is_older_than_what_comes_back(place: Place, queue: str) -> None:
    if not place.ordered:
        pytest.skip("the broker does not tell what is older")
    aside = f"{queue}-aside"
    place.send(queue, mixed(0, 1, 2, 3))
    mover(place).move(queue, aside, of("a"), 100, skip=2)
    place.send(queue, [("a", 4)])
    assert mover(place).give_back(aside, queue, of("a"), 0).moved == 0
    assert seen(place, aside) == [("a", 2), ("a", 3), ("a", 4)]
    assert mover(place).count(queue, of("a"), 9) == 2
    mover(place).give_back(aside, queue, of("a"), 9)
    assert [number for tenant, number in seen(place, queue) if tenant == "a"] == [0, 1, 2, 3, 4]


def test_what_a_consumer_has_in_its_hands_is_not_moved(place: Place, queue: str) -> None:
    place.send(queue, mixed(0, 1, 2))
    in_hand = place.take(queue, 3)
    assert in_hand == mixed(0, 1, 2)[:3]
    moved = mover(place).move(queue, f"{queue}-aside", lambda message: True, 100)
    assert moved.moved == 3
    assert seen(place, f"{queue}-aside") == mixed(0, 1, 2)[3:]


def test_what_came_back_is_taken_by_consumers_once(place: Place, queue: str) -> None:
    place.send(queue, mixed(0, 1))
    mover(place).move(queue, f"{queue}-aside", of("a", "b"), 100)
    mover(place).give_back(f"{queue}-aside", queue, of("a", "b"), 100)
    assert sorted(place.take(queue, 4)) == sorted(mixed(0, 1))


_CHILD = """
import sys
{killed}
from actuators.movers.registry import KINDS
import json
settings, source, target = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
mover = KINDS.make(KINDS.chosen({{"name": "mq", **settings}}))
while mover.move(source, target, lambda message: message.tenant == "a", 2).moved:
    pass
"""


def test_a_mover_that_is_killed_half_way_loses_nothing_and_doubles_a_batch_at_most(place: Place, queue: str) -> None:
    import json

    aside, sent = f"{queue}-aside", mixed(*range(6))
    place.send(queue, sent)
    code = _CHILD.format(killed=place.killed)
    child = subprocess.run(
        [sys.executable, "-c", code, json.dumps(place.settings), queue, aside],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    there = Counter(seen(place, queue)) + Counter(seen(place, aside))
    assert there.keys() == set(sent)
    assert sum(there.values()) - len(sent) <= 2, "a batch"
    while mover(place).move(queue, aside, of("a"), 2).moved:
        pass
    assert {number for tenant, number in seen(place, aside)} == set(range(6))
    assert [one for one in seen(place, queue) if one[0] == "a"] == []
    ids = Counter(
        Trace.of(headers.get(TRACE)).id  # type: ignore[union-attr]
        for *_, headers in place.look(aside)
        if TRACE in headers
    )
    assert sum(count - 1 for count in ids.values()) <= 2 and max(ids.values(), default=1) <= 2


def test_dropping_throws_away_the_chosen_alone(place: Place, queue: str) -> None:
    place.send(queue, mixed(0, 1))
    assert mover(place).drop(queue, of("a"), 100) == 2
    assert seen(place, queue) == [("b", 0), ("b", 1)]


def test_a_queue_that_is_not_there_is_an_error_or_empty(place: Place) -> None:
    try:
        assert mover(place).move("no-such-queue", "aside", of("a"), 10).moved == 0
    except Refused as refused:
        assert "no" in str(refused)


def test_a_server_that_is_away_is_an_error(place: Place) -> None:
    where = "endpoint" if "endpoint" in place.settings else "url"
    gone = dict(place.settings, timeout=1.0) | {where: place.settings[where].split("//")[0] + "//127.0.0.1:9"}
    with pytest.raises(SojournError):
        KINDS.make(KINDS.chosen({"name": "mq", **gone})).waiting("orders")


def test_ages_are_those_of_the_first_enqueueing() -> None:
    assert Message("1", "a", 100.0).age(130.0) == 30.0
    assert Message("1", "a", None).age(130.0) == 0.0


def test_a_trace_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    for text in (None, "", "{}", "[]", "nonsense", '{"id": 1}'):
        assert Trace.of(text) is None


@pytest.mark.parametrize("decimals", ["", ".8", ".8671", ".867123", ".867123456"])
def test_nats_tells_times_without_the_zeros_at_their_end(decimals: str) -> None:
    settings = KINDS.chosen({"kind": "nats", "name": "mq", "url": "nats://127.0.0.1:9"})
    told = {"seq": 7, "subject": "orders.a", "time": f"2026-11-23T19:21:27{decimals}Z"}
    one = KINDS.make(settings)._read("orders", told)  # type: ignore[attr-defined]
    assert one.message.enqueued_at == pytest.approx(1795461687 + float(decimals or 0), abs=1e-6)


def test_dead_letters_of_nats_go_back_to_the_subject_that_is_named(place: Place, queue: str) -> None:
    if place.settings["kind"] != "nats":
        pytest.skip("others have no subjects")
    place.send(f"{queue}-dead", [("a", 0), ("a", 1)])
    place.send(queue, [("b", 0)])
    with pytest.raises(Refused, match="subject"):
        mover(place).move(f"{queue}-dead", queue, of("a"), 10)
    again = KINDS.make(KINDS.chosen({"name": "mq", **place.settings, "subject": queue + ".{tenant}"}))
    assert again.move(f"{queue}-dead", queue, of("a"), 10).moved == 2
    assert seen(place, queue) == [("b", 0), ("a", 0), ("a", 1)]
