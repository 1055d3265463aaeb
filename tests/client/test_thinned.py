"""What producers and consumers choose for themselves, on a real Redis: CoDel's thinning, and shards of queues."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn
from tests.support.moved_clock import Clock
from tests.support.redis import RedisServer

TARGET, INTERVAL = 0.1, 0.5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        client.flushall()
        yield client


def consume(redis: Any, thins: bool, seconds: int) -> dict[str, list[float]]:
    """A consumer of a list that ends 50 messages a second, of which a flood sends 60 and a quiet tenant 2.5: how long
    each tenant's messages waited that were handled. What is put aside goes into a list of its own."""
    clock, waits = Clock(), {"flood": [], "quiet": []}  # type: ignore[var-annotated]
    thinner = sojourn.CoDel(TARGET, INTERVAL, clock=clock)
    sent, free = Counter[str](), clock.now
    began = clock.now
    for step in range(seconds * 60):
        clock.now = began + step / 60
        for tenant, each in (("flood", 1), ("quiet", 24)):
            if step % each == 0:
                message = {"tenant": tenant, "number": sent[tenant], "enqueued_at": clock.now}
                redis.lpush("orders", json.dumps(message))
                sent[tenant] += 1
        while free <= clock.now and (element := redis.rpop("orders")) is not None:
            message = json.loads(element)
            waited, left = clock.now - message["enqueued_at"], redis.llen("orders")
            if thins and thinner.drops(waited, left=left):
                redis.lpush("orders-aside", element)
                continue
            waits[message["tenant"]].append(waited)
            free = max(free, clock.now - 0.02) + 0.02
    kept = Counter(
        json.loads(one)["tenant"] for name in ("orders", "orders-aside") for one in redis.lrange(name, 0, -1)
    )
    for tenant, all_of_it in sent.items():
        assert all_of_it == kept[tenant] + len(waits[tenant]), "nothing is lost, nothing is there twice"
    return waits


def test_a_consumer_that_thins_holds_the_wait_of_a_flood_that_does_not_end_and_loses_nothing(redis: Any) -> None:
    without = consume(redis, thins=False, seconds=30)
    redis.flushall()
    thinned = consume(redis, thins=True, seconds=30)
    late = {name: waits[3 * len(waits) // 4 :] for name, waits in thinned.items()}
    assert max(without["quiet"]) > 5, "in order of arrival all wait longer and longer"
    assert max(late["quiet"]) < 1 and max(late["flood"]) < 1
    handled = {name: sum(map(len, waits.values())) for name, waits in (("without", without), ("thinned", thinned))}
    assert handled["thinned"] >= 0.99 * handled["without"], "no capacity is lost"
    aside = Counter(json.loads(one)["tenant"] for one in redis.lrange("orders-aside", 0, -1))
    assert aside["flood"] > 10 * aside["quiet"], "who floods is thinned"


def test_a_burst_that_drains_within_the_interval_is_left_alone() -> None:
    clock = Clock()
    thinner = sojourn.CoDel(TARGET, INTERVAL, clock=clock)
    began = clock.now
    for number in range(90):
        clock.now = began + number / 200
        assert not thinner.drops(0.45 - number / 200, left=90 - number)


WAITS = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 60) | st.just(math.nan), st.integers(0, 9)), max_size=120)


@given(WAITS)
def test_what_is_harmless_and_the_last_of_a_queue_are_never_put_aside(taken: list[tuple[float, float, int]]) -> None:
    clock = Clock()
    thinner = sojourn.CoDel(TARGET, INTERVAL, clock=clock)
    for passed, waited, left in taken:
        clock.now += passed
        decision = thinner.decide(waited, left=left)
        assert decision.reason
        assert not decision.drop or (waited >= TARGET and left >= 1)


@settings(max_examples=25)
@given(st.floats(0.3, 60), st.integers(2, 20))
def test_no_queue_is_thinned_faster_than_the_root_of_how_often(waited: float, seconds: int) -> None:
    clock = Clock()
    thinner, began, dropped = sojourn.CoDel(TARGET, INTERVAL, clock=clock), clock.now, []
    for step in range(seconds * 20):
        clock.now = began + step / 20
        while thinner.drops(waited, left=9):
            dropped.append(clock.now)
    gaps = [later - earlier for earlier, later in pairwise(dropped)]
    assert not dropped or dropped[0] - began >= INTERVAL
    allowed = accumulate(INTERVAL / math.sqrt(number + 1) for number in range(len(gaps)))
    assert all(passed >= least - 0.06 for passed, least in zip(accumulate(gaps), allowed, strict=True))


@pytest.mark.parametrize("terms", [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.1, math.inf)])
def test_terms_that_make_no_sense_are_refused(terms: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="target"):
        sojourn.CoDel(*terms)


def test_a_tenant_that_floods_its_shard_leaves_all_others_a_queue_that_is_empty(redis: Any) -> None:
    queues = [f"orders-{number}" for number in range(12)]
    shards = sojourn.ShuffleShards(queues, size=3)

    def send(tenant: str) -> str:
        queue = shards.queue_for(tenant, {name: redis.llen(name) for name in shards.of(tenant)})
        redis.lpush(queue, tenant)
        return queue

    for _ in range(3000):
        send("flood")
    assert {name for name in queues if redis.llen(name)} == set(shards.of("flood"))
    assert all(redis.llen(name) == 1000 for name in shards.of("flood")), "the emptiest of its own each time"
    behind = [tenant for tenant in map("t{}".format, range(200)) if redis.llen(send(tenant)) > 1000]
    same = [tenant for tenant in map("t{}".format, range(200)) if set(shards.of(tenant)) == set(shards.of("flood"))]
    assert behind == same, "who was dealt the very same waits behind it, nobody else"
    assert len(same) <= 5, "one in 220"


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=200), st.integers(1, 6))
def test_a_process_that_knows_no_backlogs_sends_its_tenants_evenly_over_their_queues(
    senders: list[str], size: int
) -> None:
    shards = sojourn.ShuffleShards([f"q{number}" for number in range(6)], size, salt="x")
    sent: dict[str, Counter[str]] = {}
    for tenant in senders:
        queue = shards.queue_for(tenant)
        assert queue in shards.of(tenant)
        sent.setdefault(tenant, Counter())[queue] += 1
    if len(sent) == 1:
        ((tenant, counts),) = sent.items()
        assert max(counts.values()) - min(counts[queue] for queue in shards.of(tenant)) <= 1


def test_shards_that_cannot_be_are_refused_at_once() -> None:
    for queues, size in ((["a"], 2), (["a"], 0), (["a", "a"], 1)):
        with pytest.raises(ValueError, match=r"shard|twice"):
            sojourn.ShuffleShards(queues, size)
