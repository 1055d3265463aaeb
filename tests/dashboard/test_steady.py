"""What a page shows stays in its place, unless something worse has to have it."""

from __future__ import annotations

from dashboard.services.keys import QueueKey
from dashboard.services.overview import QueueCard, Verdict
from dashboard.services.steady import HELD_SECONDS, Picture, Places, pictured, steady


def card(name: str, verdict: Verdict = Verdict.WATCH) -> QueueCard:
    return QueueCard(QueueKey("nats", name), name, verdict, "", "", (), (), None, 1, None)  # type: ignore[arg-type]


def names(cards: tuple[QueueCard, ...]) -> str:
    return "".join(card.name for card in cards)


def test_of_one_verdict_those_that_are_shown_keep_their_places_and_a_worse_one_goes_before() -> None:
    order, places = steady([card("a"), card("b"), card("c"), card("f", Verdict.FINE)], None, 2, 0.0)
    assert names(order) == "abc" and [key.queue for key in places.keys] == ["a", "b"]
    order, places = steady([card("c"), card("b"), card("a")], places, 2, 1.0)
    assert names(order) == "abc"
    order, places = steady([card("d", Verdict.ACT), card("c"), card("b"), card("a")], places, 2, 2.0)
    assert names(order) == "dabc" and places.since == 0.0
    order, _ = steady([card("c"), card("b"), card("a")], places, 2, HELD_SECONDS)
    assert names(order) == "cba", "and once a minute the order is exact"


def test_who_is_far_from_the_worst_keeps_no_place() -> None:
    order, _ = steady([card(name) for name in "bcdea"], Places((QueueKey("nats", "a"),), 0.0), 2, 1.0)
    assert names(order) == "bcdea"


def test_the_picture_stays_for_a_minute_unless_a_queue_is_worse_or_its_own_is_gone() -> None:
    first = pictured([card("a"), card("b")], None, 0.0)
    assert first == Picture(QueueKey("nats", "a"), Verdict.WATCH, 0.0)
    assert pictured([card("b"), card("a", Verdict.FINE)], first, 1.0) == first
    assert pictured([card("b", Verdict.ACT), card("a")], first, 1.0).key.queue == "b"
    assert pictured([card("b")], first, 1.0).key.queue == "b"
    assert pictured([card("b"), card("a")], first, HELD_SECONDS).key.queue == "b"
