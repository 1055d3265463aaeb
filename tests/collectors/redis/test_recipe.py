"""The example's queue: no message is lost or held twice, whatever interleaves and whoever crashes."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from examples.redis_queue.recipe import Message, Queue
from tests.support.redis import RedisServer
from tests.support.waiting import PATIENCE

SHARDS = ("a", "b")
IDS = [f"message-{number}" for number in range(8)]


class Interleaved(RuleBasedStateMachine):
    """Producers, consumers and the sweep in any order, against what must be true of the keys after each step.

    A script is one step, so that every interleaving of processes is an order of these rules. Time passes where a
    deadline is moved into the past.
    """

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.client = self.server.client()
        self.queue = Queue(self.client, "orders", shards=SHARDS, visibility=60)
        self.live: set[str] = set()
        self.delayed: set[str] = set()
        self.held: dict[str, Message] = {}
        self.late: list[Message] = []
        self.steps = 0

    @initialize()
    def empty(self) -> None:
        self.client.flushall()

    @rule(id=st.sampled_from(IDS), priority=st.integers(0, 99), delayed=st.booleans())
    def push(self, id: str, priority: int, delayed: bool) -> None:
        self.queue.push({"id": id}, id=id, priority=priority, delay=600 if delayed else 0)
        if id in self.live:
            return
        self.live.add(id)
        if delayed:
            self.delayed.add(id)
        else:  # ordered by step, not by the clock: the same steps do the same again
            self.steps += 1
            self.client.zadd(f"app.QUEUE.{{orders.{self.queue.shard_of(id)}}}", {id: self.steps}, xx=True)

    @rule(count=st.integers(1, 5), shard=st.sampled_from([None, *SHARDS]))
    def poll(self, count: int, shard: str | None) -> None:
        waiting = self.live - self.delayed - self.held.keys() - self.unswept()
        waiting = {id for id in waiting if shard in (None, self.queue.shard_of(id))}
        taken = self.queue.poll(count, shard=shard)
        assert len(taken) == min(count, len(waiting))
        for message in taken:
            assert message.id in waiting, "held twice, or finished before"
            assert message.payload == {"id": message.id}
            self.held[message.id] = message

    def unswept(self) -> set[str]:
        """Messages of crashed consumers that no sweep has brought back yet."""
        return {id.decode() for shard in SHARDS for id in self.client.zrange(_unack(shard), 0, -1)} - self.held.keys()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        message = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        assert self.queue.ack(message)
        self.live.remove(message.id)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """A consumer is gone between poll and acknowledgement, its deadline passes; it may come back later."""
        message = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        self.client.zadd(_unack(message.shard), {message.id: 1}, xx=True)
        self.late.append(message)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def ack_too_late(self, data: st.DataObject) -> None:
        """The consumer comes back, its message swept, waiting or another's by now: it may finish nothing."""
        message = self.late[data.draw(st.integers(0, len(self.late) - 1))]
        assert not self.queue.ack(message)

    @rule()
    def sweep(self) -> None:
        overdue = len(self.unswept())
        assert self.queue.sweep() == overdue

    @precondition(lambda self: self.delayed)
    @rule(data=st.data())
    def become_due(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.delayed)))
        self.steps += 1
        self.client.zadd(f"app.QUEUE.{{orders.{self.queue.shard_of(id)}}}", {id: self.steps}, xx=True)
        self.delayed.remove(id)

    @invariant()
    def each_live_message_stands_in_one_place_and_no_other_does(self) -> None:
        places: Counter[str] = Counter()
        stored: set[str] = set()
        since: set[str] = set()
        for shard in SHARDS:
            for key in (f"app.QUEUE.{{orders.{shard}}}", _unack(shard)):
                places.update(id.decode() for id in self.client.zrange(key, 0, -1))
            stored |= {id.decode() for id in self.client.hkeys(f"app.MSG.{{orders.{shard}}}.0")}
            since |= {id.decode() for id in self.client.zrange(f"app.SINCE.{{orders.{shard}}}", 0, -1)}
        assert places == Counter(self.live)
        assert stored == since == self.live

    def teardown(self) -> None:
        """All consumers crash; then everything that was not acknowledged is delivered, each once."""
        while self.held:
            id, message = self.held.popitem()
            self.client.zadd(_unack(message.shard), {id: 1}, xx=True)
        self.queue.sweep()
        taken = [message.id for message in self.queue.poll(100)]
        assert sorted(taken) == sorted(self.live - self.delayed)
        self.client.close()


def _unack(shard: str) -> str:
    return f"app.UNACK.{{orders.{shard}}}.0"


def test_no_message_is_lost_or_held_twice_in_any_interleaving(redis_server: RedisServer) -> None:
    machine = type("OnServer", (Interleaved,), {"server": redis_server})
    few = settings(
        max_examples=50,
        stateful_step_count=30,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # a failing example is short already, and is not run for minutes to be made shorter
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=few)


def test_consumers_at_once_finish_each_message_once_though_some_never_acknowledge(redis_server: RedisServer) -> None:
    number, done, lock = 300, Counter[str](), threading.Lock()
    with redis_server.client() as client:
        queue = Queue(client, "orders", shards=SHARDS, visibility=0.15)
        ids = [queue.push({"n": n}, id=f"id-{n}", priority=n % 100) for n in range(number)]
        stop = threading.Event()

        def consume(worker: int) -> None:
            seen = 0
            while not stop.is_set():
                messages = queue.poll(3)
                queue.sweep()
                for message in messages:
                    seen += 1
                    if seen % 7 == worker:
                        continue  # a crash: never acknowledged
                    if queue.ack(message):
                        with lock:
                            done[message.id] += 1
                if not messages:
                    time.sleep(0.005)

        threads = [threading.Thread(target=consume, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + PATIENCE * 20
        while sum(done.values()) < number and time.monotonic() < deadline:
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert done == Counter(ids)
        assert client.keys("app.*") == []


def test_the_lowest_priority_number_is_received_first_among_those_due_at_once(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        queue = Queue(client, "orders")
        for priority in (50, 99, 0, 7):
            queue.push(priority, priority=priority)
        due = 1_700_000_000_000
        for id, score in client.zrange("app.QUEUE.{orders.a}", 0, -1, withscores=True):
            client.zadd("app.QUEUE.{orders.a}", {id: due + round(score % 1, 2)})
        assert [message.payload for message in queue.poll(10)] == [0, 7, 50, 99]


@pytest.mark.parametrize("wrong", [{"priority": 100}, {"priority": -1}, {"delay": -1.0}])
def test_what_the_score_cannot_hold_is_refused(redis_server: RedisServer, wrong: dict[str, float]) -> None:
    with redis_server.client() as client, pytest.raises(ValueError):
        Queue(client, "orders").push("x", **wrong)
