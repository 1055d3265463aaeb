"""Clusters, Sentinels, replicas and primaries that were replaced: what is not where it was is followed, or unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from brokers.errors import ConnectionLost
from collectors.redis.cluster import slot_of
from collectors.redis.settings import RedisBroker
from collectors.samples import was_read
from lake.errors import UserError
from tests.collectors.redis.reading import Named, counts, named, read, source
from tests.support.facts import proves
from tests.support.redis import RedisCluster, RedisSentinel, RedisServer, prepare
from tests.support.waiting import wait_until

QUEUES = [f"queue-{number}" for number in range(30)]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: RedisCluster) -> RedisCluster:
    """Three primaries with queues of every layout, spread over all of them."""
    for node in shared_cluster.nodes:
        with node.client() as client:
            client.flushall()
    with shared_cluster.client() as client:
        for name in QUEUES:
            client.zadd(f"app.QUEUE.{{{name}.a}}", {"m": 1})
            client.xadd(name, {"a": 1})
            client.xgroup_create(name, "group", id="0")
        client.sadd("rq:queues", "rq:queue:jobs")
        client.rpush("rq:queue:jobs", "one")
        client.sadd("_kombu.binding.tasks", "tasks\x06\x16\x06\x16tasks")
        client.rpush("tasks", '{"headers": {}}')
    return shared_cluster


EVERYTHING = {(f"app.{name}", None) for name in QUEUES} | {(name, "group") for name in QUEUES}
EVERYTHING |= {("jobs", None), ("jobs.failed", None), ("tasks", None)}


async def read_until(one: Any, met: Any) -> Named:
    """Readings, opening again as the sampler does, until ``met`` is true of one."""
    for _ in range(400):
        with suppress(ConnectionLost):
            found = named(await one.read())
            if met(found):
                return found
            await asyncio.sleep(0.05)
            continue
        await asyncio.sleep(0.05)
        with suppress(ConnectionLost):
            await one.open()
    raise AssertionError("not within 400 readings")


def test_slots_are_those_of_the_server(cluster: RedisCluster) -> None:
    keys = [b"foo", b"{a.b}.c", b"x{}y{z}", b"{", b"", b"a{b}{c}", "äöü".encode()]
    with cluster.nodes[0].client() as client:
        assert [slot_of(key) for key in keys] == [client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys]


@proves("redis", "cluster shapes", "Redis Cluster")
def test_every_primary_of_a_cluster_is_read_whichever_node_is_named(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        with node.client() as client:
            assert 0 < client.dbsize() < 2 * len(QUEUES)
        found = read(node)
        assert set(found) == EVERYTHING
        assert all(sample.depth == 1 for (queue, _), sample in found.items() if queue != "jobs.failed")


async def test_a_slot_that_moves_is_followed_while_it_moves_and_afterwards(cluster: RedisCluster) -> None:
    slot = slot_of(QUEUES[0])
    giver = cluster.holder(slot)
    taker = next(node for node in cluster.nodes if node is not giver)
    one = source(giver, streams={"keys": QUEUES})
    await one.open()
    with giver.client() as old, taker.client() as new:
        names = [client.execute_command("CLUSTER", "MYID").decode() for client in (old, new)]
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
        keys = old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        old.execute_command("MIGRATE", "127.0.0.1", taker.port, "", 0, 5000, "KEYS", *keys)
        with pytest.raises(redis.exceptions.AskError):
            old.execute_command("XLEN", QUEUES[0])
        moving = named(await one.read())
        for client, node in ((new, names[1]), (old, names[1])):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", node)
        with pytest.raises(redis.exceptions.MovedError):
            old.execute_command("XLEN", QUEUES[0])
        moved = [named(await one.read()) for _ in range(2)]
        await one.close()
        # As it was before, for the other tests.
        old.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[1])
        new.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[0])
        new.execute_command("MIGRATE", "127.0.0.1", giver.port, "", 0, 5000, "KEYS", *keys)
        for client in (old, new):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[0])
    for found in (moving, *moved):
        assert {key: sample.depth for key, sample in found.items()} == {(name, "group"): 1 for name in QUEUES}


@pytest.mark.parametrize("place", range(3))
async def test_a_node_that_is_lost_makes_its_own_queues_unknown_in_their_rows_and_no_other(
    cluster: RedisCluster, place: int
) -> None:
    one = source(cluster.nodes[0])
    await one.open()
    before = named(await one.read())
    assert set(before) == EVERYTHING and all(map(was_read, before.values()))
    lost = cluster.nodes[place]
    theirs = {(name, "group") for name in QUEUES if cluster.holder(slot_of(name)) is lost}
    theirs |= {(f"app.{name}", None) for name in QUEUES if cluster.holder(slot_of(f"{{{name}.a}}")) is lost}
    others = {key for key in before if key[0].removeprefix("app.") in QUEUES} - theirs
    lost.kill()
    try:
        for _ in range(3):  # who is lost is unknown in each cycle, also where it was before
            found = named(await one.read())
            assert set(found) == EVERYTHING
            assert len(theirs) > 0 and all(map(was_read, map(found.__getitem__, others)))
            for key in found.keys() - others:
                unknown = found[key].depth is None and "NODEDOWN" in found[key].unavailable["depth"]
                assert unknown or (key not in theirs and found[key].depth == before[key].depth), found[key]
                assert found[key].dead_letter_for == before[key].dead_letter_for
    finally:
        lost.start()
        cluster.wait_whole()
    await read_until(one, lambda found: all(map(was_read, found.values())))
    await one.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary with queues, and its replica, which has them too."""
    with RedisServer(tmp_path / "one") as primary:
        prepare(primary)
        arguments = ["--replicaof", "127.0.0.1", str(primary.port), "--repl-diskless-sync-delay", "0"]
        primary_client = primary.client()
        primary_client.config_set("repl-diskless-sync-delay", 0)
        primary_client.close()
        with RedisServer(tmp_path / "two", *arguments) as replica:
            with primary.client() as one, replica.client() as two:
                wait_until(lambda: one.role()[2] and two.role()[3] == b"connected", "the replica to be in step")
                wait_until(lambda: two.dbsize() == one.dbsize(), "the replica to hold what its primary does")
            yield primary, replica


@proves("redis", "cluster shapes", "replicas, where asked for")
def test_a_replica_is_no_place_to_read_queues_at_unless_it_is_asked_for(pair: tuple[RedisServer, RedisServer]) -> None:
    primary, replica = pair
    with pytest.raises(ConnectionLost, match=f"is a replica of 127.0.0.1:{primary.port}: name the primary"):
        read(replica)
    assert counts(read(replica, read_replica=True)["app.orders", None]) == (3, 2, 1)
    primary.kill()
    with pytest.raises(ConnectionLost, match="without its primary"):
        for _ in range(200):
            read(replica, read_replica=True)


async def test_an_old_primary_that_comes_back_empty_after_a_fail_over_tells_nothing_rather_than_zeros(
    pair: tuple[RedisServer, RedisServer],
) -> None:
    primary, replica = pair
    one = source(primary)
    await one.open()
    assert counts(named(await one.read())["app.orders", None]) == (3, 2, 1)
    primary.kill()
    with pytest.raises(ConnectionLost):
        await one.read()
    with replica.client() as client:
        client.replicaof("NO", "ONE")
    primary.start()
    for _ in range(2):
        with pytest.raises(ConnectionLost, match=f"until 127.0.0.1:{replica.port} was promoted in its place"):
            await one.open()
    with primary.client() as client:
        client.replicaof("127.0.0.1", replica.port)
    with pytest.raises(ConnectionLost, match="is a replica of"):
        await one.open()
    await one.close()


@proves("redis", "cluster shapes", "Sentinel")
async def test_sentinels_name_the_primary_before_and_after_a_fail_over(
    pair: tuple[RedisServer, RedisServer], tmp_path: Path
) -> None:
    primary, replica = pair
    with RedisSentinel(tmp_path / "sentinel", primary) as sentinel:
        nobody = "127.0.0.1:1"
        asked = {"service": "primary", "addresses": [nobody, f"127.0.0.1:{sentinel.port}"]}
        one = source(primary, url="redis://anywhere/0", sentinel=asked)
        await one.open()
        assert counts(named(await one.read())["app.orders", None]) == (3, 2, 1)
        sentinel.fail_over()
        with replica.client() as client:
            client.zadd("app.QUEUE.{orders.a}", {"another": 1})
        found = await read_until(one, lambda found: found["app.orders", None].depth == 4)
        assert counts(found["app.orders", None]) == (4, 2, 1)
        await one.close()
        with pytest.raises(UserError, match="no Sentinel knows the service 'other'"):
            asked = {"service": "other", "addresses": [f"127.0.0.1:{sentinel.port}"]}
            await source(primary, sentinel=asked).open()
        url = f"redis://127.0.0.1:{sentinel.port}"
        with pytest.raises(UserError, match="is a Sentinel"):
            await source(primary, url=url).open()


def test_an_address_of_rediss_is_tls_and_valkeys_are_the_same() -> None:
    for url in ("rediss://cache:6380/1", "valkeys://cache:6380/1"):
        broker = RedisBroker.model_validate({"url": url, "tls": {"ca": "ca.pem"}})
        assert broker.tls.enabled and broker.database == 1 and broker.addresses() == [("cache", 6380)]
    assert not RedisBroker(url="valkey://cache").tls.enabled
