"""The sampler against a real server: what is told is right, what is not told is null with a reason."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from brokers.errors import ConnectionLost
from collectors.board import Board
from collectors.context import Context
from collectors.sampler import Sampler
from collectors.samples import Sample
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from collectors.writer import Writer
from lake.store import Lake
from lake.tables import QUEUE_SAMPLES
from tests.collectors.support import api, collecting, connect, make_consumer, make_queue, make_stream, publish, settings
from tests.support.nats import NatsServer
from tests.support.waiting import wait_until

MEASURES = [
    field.name
    for field in QUEUE_SAMPLES.schema
    if field.nullable
    and field.name
    not in (
        *("subscriber", "dead_letter_for", "unavailable", "estimated", "tenants"),
        *("publishes", "publish_errors", "sample_interval_seconds"),
    )
]


def newest(root: Path) -> dict[tuple[str, str | None], dict[str, Any]]:
    rows = Lake(root).read("queue_samples").to_pylist() if (root / "bronze/queue_samples").exists() else []
    return {(row["queue"], row["subscriber"]): row for row in sorted(rows, key=lambda row: row["sampled_at"])}


def test_a_sample_tells_depth_flight_limits_and_age_of_each_subscriber(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def prepare() -> Any:
        connection = await connect(own_nats_server.url)
        await make_stream(connection, "EVENTS", retention="limits")
        await make_consumer(connection, "EVENTS", "billing")
        await make_consumer(connection, "EVENTS", "audit", filter_subject="events.1")
        await make_stream(connection, "DEAD", retention="limits")
        stream = connection.jetstream()
        await publish(stream, 9)
        await publish(stream, 9, subject="events")
        await publish(stream, 4, subject="dead")
        pull = await stream.pull_subscribe_bind("work", "ORDERS")
        for message in (await pull.fetch(3, timeout=5))[:1]:
            await message.ack()
        await connection.flush()
        await connection.close()

    make_queue(own_nats_server.url, "ORDERS", ack_wait=45_000_000_000, max_ack_pending=7)
    asyncio.run(prepare())
    dead = {"name": "DEAD", "queue": "orders-dlq", "dead_letter_for": "ORDERS"}
    chosen = settings(own_nats_server.url, "ORDERS", "EVENTS", dead, broker={"tap": {"enabled": False}})
    with collecting(chosen, root):
        wait_until(lambda: len(newest(root)) == 4, "samples of every queue")
    found = newest(root)
    work = found["ORDERS", None]
    assert (work["depth"], work["in_flight"], work["in_flight_limit"]) == (6, 2, 7)
    assert work["visibility_timeout_seconds"] == 45
    assert work["published_total"] == 9
    assert work["delivered_total"] == 3
    assert 0 < work["oldest_age_seconds"] < 60
    assert found["EVENTS", "billing"]["depth"] == 9
    assert found["EVENTS", "audit"]["depth"] == 3
    assert {row["sample_interval_seconds"] for row in found.values()} == {chosen.sample_interval}
    dead_letters = found["orders-dlq", None]
    assert (dead_letters["depth"], dead_letters["dead_letter_for"], dead_letters["consumers"]) == (4, "ORDERS", 0)
    for row in found.values():
        reasons = dict(row["unavailable"])
        unknown = {name for name in MEASURES if row[name] is None}
        assert unknown == set(reasons)


def test_without_a_list_every_stream_is_sampled_and_none_is_touched(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    make_queue(own_nats_server.url, "ONE")
    make_queue(own_nats_server.url, "TWO")
    broker = {"streams": [], "tap": {"enabled": True}}
    chosen = settings(own_nats_server.url, broker=broker)
    with collecting(chosen.model_copy(), root):
        wait_until(lambda: {queue for queue, _ in newest(root)} == {"ONE", "TWO"}, "samples of both")

    async def streams() -> Any:
        connection = await connect(own_nats_server.url)
        found = await connection.jetstream().streams_info()
        await connection.close()
        return found

    found = asyncio.run(streams())
    assert {stream.config.name for stream in found} == {"ONE", "TWO"}
    assert all(stream.config.republish is None for stream in found)


def test_an_empty_queue_has_depth_and_age_zero_not_unknown(own_nats_server: NatsServer, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url, broker={"tap": {"enabled": False}}), root):
        wait_until(lambda: bool(newest(root)), "a sample")
    (row,) = newest(root).values()
    assert (row["depth"], row["in_flight"], row["oldest_age_seconds"]) == (0, 0, 0.0)


def test_a_subscriber_that_is_left_alone_keeps_the_name_that_the_tap_gives_it(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 3)
        await asyncio.to_thread(wait_until, lambda: {name for _, name in newest(root)} >= {"a", "b"}, "both named")
        await api(connection, "CONSUMER.DELETE.ORDERS.b")
        await publish(connection.jetstream(), 1)
        await asyncio.to_thread(
            wait_until, lambda: newest(root)["ORDERS", "a"]["published_total"] == 4, "a sample after that"
        )
        await connection.close()

    make_queue(own_nats_server.url, "ORDERS", "a", filter_subject="orders.0")

    async def second() -> None:
        connection = await connect(own_nats_server.url)
        await make_consumer(connection, "ORDERS", "b", filter_subject="orders.1")
        await connection.close()

    asyncio.run(second())
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work())
    assert {name for _, name in newest(root)} == {"a", "b"}


class Odd:
    """A source whose broker answers what nobody foresaw."""

    def __init__(self) -> None:
        self.sound = False
        self.depth = 3

    async def open(self) -> None:
        pass

    async def read(self) -> list[Sample]:
        if self.sound:
            return [Sample("orders", 1, depth=self.depth)]
        raise KeyError("messages")

    async def close(self) -> None:
        pass


def test_an_answer_that_nobody_foresaw_is_a_lost_connection_and_ends_no_other_collector(tmp_path: Path) -> None:
    source, board = Odd(), Board()
    writer = Writer(Lake(tmp_path))
    sampler = Sampler("odd", "mq", source, Context(CollectSettings(), writer, SelfMetrics(), board))

    async def work() -> None:
        source.sound = True
        await sampler.step()
        assert board.newest()
        source.sound = False
        for _ in range(2):
            with pytest.raises(ConnectionLost, match=r"'mq' gave an answer that cannot be read \(KeyError\)"):
                await sampler.step()
        assert not board.newest()
        source.sound, source.depth = True, 10**30  # of which no table can hold a row
        await sampler.step()
        assert board.newest() == [("mq", [])]

    asyncio.run(work())
    writer.close()
    assert "OverflowError" in Lake(tmp_path).read("rejected_records").to_pylist()[0]["reason"]


class Leaving(Odd):
    """A source of two queues, of which one is deleted and made anew, and the broker is empty in the end."""

    cycles = iter([["orders", "orders.dead"], ["orders"], ["orders"], ["orders", "orders.dead"], [], []])

    async def read(self) -> list[Sample]:
        serves = {"orders.dead": "orders"}
        return [Sample(name, 7, depth=3, dead_letter_for=serves.get(name)) for name in next(self.cycles)]


def test_a_queue_that_is_gone_is_told_once_as_unknown_and_does_not_look_alive(tmp_path: Path) -> None:
    board = Board()
    writer = Writer(Lake(tmp_path))
    sampler = Sampler("odd", "mq", Leaving(), Context(CollectSettings(), writer, SelfMetrics(), board))

    async def work() -> list[dict[tuple[str, str | None], int | None]]:
        told, before = [], 0
        for _ in range(6):
            await sampler.step()
            rows = Lake(tmp_path).read("queue_samples").sort_by("ingested_at").to_pylist()[before:]
            before += len(rows)
            told.append({(row["queue"], row["dead_letter_for"]): row["depth"] for row in rows})
        return told

    told = asyncio.run(work())
    writer.close()
    both = {("orders", None): 3, ("orders.dead", "orders"): 3}
    assert told[0] == told[3] == both
    assert told[1] == both | {("orders.dead", "orders"): None} and told[2] == {("orders", None): 3}
    assert told[4] == dict.fromkeys(both) and told[5] == {}
    assert board.newest() == [("mq", [])]


class Slow(Odd):
    """A source that takes longer than its interval."""

    async def read(self) -> list[Sample]:
        await asyncio.sleep(0.06)
        return []


def test_a_cycle_that_cannot_keep_its_interval_says_so_and_lengthens_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, metrics = Writer(Lake(tmp_path)), SelfMetrics()
    sampler = Sampler("odd", "mq", Slow(), Context(CollectSettings(), writer, metrics, Board()), 0.05)

    async def work() -> None:
        for _ in range(5):
            assert sampler.interval == 0.05
            await sampler.step()

    asyncio.run(work())
    writer.close()
    assert sampler.interval >= 0.15  # the least multiple of which half is enough
    assert "odd-sampler:mq: a cycle takes" in caplog.text
    shown = metrics.registry.get_sample_value("sojourn_collector_interval_seconds", {"collector": "odd-sampler:mq"})
    assert shown == sampler.interval
