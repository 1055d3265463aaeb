"""FairConsumer over a queue of this process: order, bounds, faults, and an end that loses nothing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sojourn import FairConsumer
from tests.client.consuming import running
from tests.support.waiting import wait_until

Message = tuple[str, int]


class Broker:
    """A first-in-first-out queue that hands out at most as many as it is asked for."""

    def __init__(self, messages: list[Message]) -> None:
        self.queue: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.most_asked = 0
        self.handed_out = 0
        for message in messages:
            self.queue.put(message)

    def fetch(self, most: int) -> list[Message]:
        self.most_asked = max(self.most_asked, most)
        found: list[Message] = []
        while len(found) < most and not self.queue.empty():
            found.append(self.queue.get())
        self.handed_out += len(found)
        return found


def tenant_of(message: Message) -> str:
    return message[0]


def consume(broker: Broker, handle: Callable[[Message], object], count: int, **more: Any) -> FairConsumer[Message]:
    consumer = FairConsumer(broker.fetch, handle, tenant_of, **more)
    with running(consumer):
        wait_until(lambda: sum((consumer.stats().handled, consumer.stats().failed)) >= count, "all to be handled")
    return consumer


def test_the_quiet_overtake_what_a_flood_has_in_the_buffer() -> None:
    began, handled = threading.Event(), []

    def handle(message: Message) -> None:
        began.wait(60)
        handled.append(message)

    broker = Broker([*(("flood", n) for n in range(200)), ("quiet", 0), ("quiet", 1)])
    consumer = FairConsumer(broker.fetch, handle, tenant_of, buffer=500)
    with running(consumer):
        wait_until(lambda: consumer.stats().buffered >= 201, "the buffer to fill")
        began.set()
        wait_until(lambda: consumer.stats().handled == 202, "all to be handled")
    assert [handled.index(("quiet", n)) < 12 for n in range(2)] == [True, True]
    assert [n for tenant, n in handled if tenant == "flood"] == list(range(200))


def test_no_more_is_fetched_than_the_buffer_holds() -> None:
    held = threading.Event()
    broker = Broker([("a", n) for n in range(1000)])
    consumer = FairConsumer(broker.fetch, lambda _: held.wait(60), tenant_of, buffer=10, workers=2)
    with running(consumer):
        wait_until(lambda: broker.handed_out >= 12, "the buffer to fill")
        assert broker.handed_out <= 12  # ten wait, two are in work
        held.set()
        wait_until(lambda: consumer.stats().handled == 1000, "all to be handled")
    assert broker.most_asked <= 10


def test_a_message_that_fails_is_told_of_and_the_others_go_on() -> None:
    failed: list[tuple[Message, str]] = []

    def handle(message: Message) -> None:
        if message[1] % 3 == 0:
            raise ValueError(message[1])

    consumer = consume(
        Broker([("a", n) for n in range(9)]), handle, 9, failed=lambda m, error: failed.append((m, str(error)))
    )
    assert sorted(failed) == [(("a", n), str(n)) for n in (0, 3, 6)]
    assert (consumer.stats().handled, consumer.stats().failed) == (6, 3)


def test_a_broker_that_cannot_be_asked_is_asked_again() -> None:
    broker = Broker([("a", 1)])
    refusals = iter([ConnectionError("gone"), TimeoutError("late")])

    def fetch(most: int) -> list[Message]:
        if error := next(refusals, None):
            raise error
        return broker.fetch(most)

    consumer: FairConsumer[Message] = FairConsumer(fetch, lambda _: None, tenant_of)
    with running(consumer):
        wait_until(lambda: consumer.stats().handled == 1, "the message")
    assert consumer.stats().fetch_failures == 2


def test_a_message_without_a_tenant_is_handled_among_the_unknown() -> None:
    def nobody(_: Message) -> str:
        raise KeyError("tenant")

    broker = Broker([("a", n) for n in range(3)])
    consumer = FairConsumer(broker.fetch, lambda _: None, nobody)
    with running(consumer):
        wait_until(lambda: consumer.stats().handled == 3, "all to be handled")


def test_what_was_fetched_and_not_handled_is_given_back() -> None:
    released: list[Message] = []
    held, begun = threading.Event(), threading.Event()

    def handle(_: Message) -> None:
        begun.set()
        held.wait(60)

    consumer = FairConsumer(Broker([("a", n) for n in range(20)]).fetch, handle, tenant_of, release=released.append)
    thread = threading.Thread(target=consumer.run, daemon=True)
    thread.start()
    assert begun.wait(60)
    wait_until(lambda: consumer.stats().buffered == 19, "the buffer to fill")
    consumer.stop()
    held.set()
    thread.join(60)
    assert released == [("a", n) for n in range(1, 20)]
    assert consumer.stats().returned == 19 and consumer.stats().handled == 1


@pytest.mark.parametrize("bound", [{"workers": 0}, {"buffer": 0}])
def test_bounds_below_one_are_refused(bound: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        FairConsumer(lambda _: [], lambda _: None, lambda _: "a", **bound)
