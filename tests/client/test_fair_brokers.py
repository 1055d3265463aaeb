"""A fair order on real brokers: the same contract for each adapter."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.client.adapters.fair_kafka import POLL_SECONDS
from sojourn.client.commits import Commits
from tests.client.consuming import running
from tests.client.fair_places import KINDS
from tests.support.elasticmq import ElasticMq
from tests.support.kafka import KafkaServer
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until


class Place:
    """A kind of broker, where it listens."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind, self.address, self.broker = kind, address, KINDS[kind](address)


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "redis":
        with RedisServer(folder) as redis:
            yield Place("redis", redis.url)
    elif request.param == "sqs":
        with ElasticMq(folder) as sqs:
            yield Place("sqs", sqs.url)
    elif request.param == "rabbitmq":
        with RabbitServer(folder) as rabbit:
            yield Place("rabbitmq", rabbit.amqp_url)
    else:
        with KafkaServer(folder) as kafka:
            yield Place("kafka", kafka.bootstrap)


def numbered(tenant: str, count: int) -> list[tuple[str, str]]:
    return [(tenant, f"{tenant}-{number}") for number in range(count)]


def test_the_quiet_overtake_what_was_fetched_and_each_tenants_order_is_kept(place: Place) -> None:
    place.broker.make("overtaken")
    place.broker.send("overtaken", numbered("flood", 60) + numbered("quiet", 10))
    seen: list[str] = []
    gate, first = threading.Event(), threading.Event()

    def handle(body: str) -> None:
        first.set()
        gate.wait(60)
        seen.append(body)
        time.sleep(0.005)  # shares are of time: work that takes none is all what a busy machine adds to it

    consumer = place.broker.consumer("overtaken", handle, workers=1)
    with running(consumer):
        assert first.wait(60)
        wait_until(lambda: consumer.stats().buffered >= 69, "all the others to be fetched", seconds=60)
        gate.set()
        wait_until(lambda: consumer.stats().handled == 70, "all to be handled", seconds=60)
    for tenant, count in (("flood", 60), ("quiet", 10)):
        of_tenant = [body for body in seen if body.startswith(tenant)]
        expected = [body for _, body in numbered(tenant, count)]
        # A standard SQS queue promises no order by itself.
        assert sorted(of_tenant) == sorted(expected) if place.kind == "sqs" else of_tenant == expected
    assert max(place for place, body in enumerate(seen) if body.startswith("quiet")) < 40, "they were sent last"
    wait_until(lambda: place.broker.left("overtaken") == 0, "the broker to know it")


def test_what_a_killed_consumer_held_is_handled_by_the_next(place: Place, tmp_path: Path) -> None:
    place.broker.make("killed")
    place.broker.send("killed", numbered("a", 150) + numbered("b", 50))
    file = tmp_path / "handled"
    command = [sys.executable, "-m", "tests.client.fair_places", place.kind, place.address, "killed", str(file)]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: file.exists() and file.read_text().count("\n") >= 40, "some to be handled", seconds=60)
    finally:
        process.kill()
        process.wait()
    before = file.read_text().split()
    seen: list[str] = []
    wanted = {body for _, body in numbered("a", 150) + numbered("b", 50)}
    with running(place.broker.consumer("killed", seen.append, workers=2)):
        wait_until(lambda: {*before, *seen} == wanted, "all to be handled", seconds=60)
        wait_until(lambda: place.broker.left("killed") == 0, "the broker to know it", seconds=60)
    assert len(before) < 200, "it was killed in the middle"
    assert len(before) + len(seen) <= 200 + 120, "what comes twice is what was in hand"


def test_what_a_consumer_had_not_begun_when_it_stopped_another_has_at_once(place: Place) -> None:
    place.broker.make("stopped")
    place.broker.send("stopped", numbered("a", 20))
    gate, first = threading.Event(), threading.Event()
    seen: list[str] = []

    def handle(body: str) -> None:
        first.set()
        gate.wait(60)
        seen.append(body)

    consumer = place.broker.consumer("stopped", handle)
    with running(consumer):
        assert first.wait(60)
        wait_until(lambda: consumer.stats().buffered == 19, "the rest to be in its buffer", seconds=60)
        consumer.stop()
        gate.set()
    other = {"name": "two"} if place.kind == "redis" else {}
    with running(place.broker.consumer("stopped", seen.append, **other)):
        wait_until(lambda: len(seen) >= 20, "the other to have the rest", seconds=60)
    assert sorted(seen) == sorted(body for _, body in numbered("a", 20)), "each once"


def test_what_fails_comes_again_and_what_is_left_is_given_back(place: Place) -> None:
    place.broker.make("failing")
    place.broker.send("failing", numbered("a", 20))
    once: list[str] = []

    def handle(body: str) -> None:
        if body == "a-3" and body not in once:
            once.append(body)
            raise ValueError(body)

    told: list[str] = []
    options = {"failed": lambda message, error: told.append(str(error))} if place.kind == "kafka" else {}
    consumer = place.broker.consumer("failing", handle, **options)
    with running(consumer):
        wanted = 19 if place.kind in ("kafka", "redis") else 20
        wait_until(lambda: consumer.stats().handled == wanted, "all to be handled", seconds=60)
    assert once == ["a-3"] and told == (["a-3"] if place.kind == "kafka" else [])
    wait_until(lambda: place.broker.left("failing") == (1 if place.kind == "redis" else 0), "the broker to know it")
    if place.kind == "redis":  # its own from before come first
        with running(place.broker.consumer("failing", handle)):
            wait_until(lambda: place.broker.left("failing") == 0, "what failed to come again", seconds=60)


def test_of_a_partition_that_waits_for_one_message_no_more_is_fetched_than_may_come_again(place: Place) -> None:
    if place.kind != "kafka":
        pytest.skip("others acknowledge each message by itself")
    place.broker.make("waits")
    place.broker.send("waits", numbered("a", 10))
    gate = threading.Event()
    seen: list[str] = []

    def handle(body: str) -> None:
        if body == "a-0":
            gate.wait(120)
        seen.append(body)

    consumer = place.broker.consumer("waits", handle, workers=2, most_uncommitted=50)
    with running(consumer):
        wait_until(lambda: len(seen) == 9, "all but the first to be handled", seconds=60)
        place.broker.send("waits", numbered("b", 60))
        wait_until(lambda: len(seen) >= 49, "as many as may come again to be handled", seconds=60)
        place.broker.send("waits", numbered("c", 60))
        time.sleep(5 * POLL_SECONDS)
        assert len(seen) <= 9 + 60, "the third lot waits at the broker"
        gate.set()
        wait_until(lambda: len(seen) == 130, "all to be handled once the first is", seconds=60)
    assert len(set(seen)) == 130, "each once"
    wait_until(lambda: place.broker.left("waits") == 0, "the broker to know it")


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.randoms())
def test_a_partition_is_committed_up_to_what_is_finished_and_no_further(gaps: list[int], chance: Any) -> None:
    commits: Commits[int] = Commits()
    offsets = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    for offset in offsets:
        commits.fetched("p", offset, offset)
    assert (commits.behind("p"), commits.behind("q")) == (len(offsets), 0)
    order, finished, last = list(offsets), set[int](), 0
    chance.shuffle(order)
    for offset in order:
        commits.finished("p", offset)
        commits.finished("another", offset)
        finished.add(offset)
        due = commits.due()
        reached = max((one for one in offsets if all(two in finished for two in offsets if two <= one)), default=0)
        assert due == ([reached] if reached > last else [])
        last = max(last, reached)
    assert last == offsets[-1] and not commits.holds("p", last) and commits.behind("p") == 0
    commits.fetched("p", last + 1, last + 1)
    commits.forget("p")
    commits.finished("p", last + 1)
    assert commits.due(["p"]) == []
