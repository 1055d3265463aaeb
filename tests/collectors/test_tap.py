"""The tap against a real server: the events that it records are exactly what the messages lived through."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collectors.board import Board
from collectors.context import Context
from collectors.nats.settings import NatsBroker
from collectors.nats.tap import NatsTap
from collectors.selfmetrics import SelfMetrics
from collectors.writer import Writer
from lake.errors import UserError
from lake.store import Lake
from tests.collectors.support import (
    api,
    collecting,
    connect,
    consume,
    events,
    kinds,
    make_consumer,
    make_queue,
    make_stream,
    publish,
    settings,
    wait_finished,
)
from tests.support.facts import proves
from tests.support.nats import NatsServer
from tests.support.waiting import wait_until


def _lives(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    assert len({event["event_id"] for event in found}) == len(found)
    lives: dict[str, list[dict[str, Any]]] = {}
    for event in found:
        lives.setdefault(event["message_id"], []).append(event)
    return lives


@proves("nats", "per tenant", "tap")
def test_each_message_published_acked_naked_and_termed_has_exactly_its_events(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    async def work() -> Counter[str]:
        connection = await connect(own_nats_server.url)
        stream = connection.jetstream()
        await publish(stream, 300)
        done = await consume(stream, 300)
        await connection.close()
        return done

    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url), tmp_path / "lake"):
        done = asyncio.run(work())
        found = wait_finished(tmp_path / "lake", 300)
    assert Counter(event["event_type"] for event in found) == done + Counter(enqueued=300)
    for message_id, life in _lives(found).items():
        sequence = int(message_id)
        assert {event["tenant"] for event in life} == {f"t{(sequence - 1) % 3}"}
        assert {event["subscriber"] for event in life} == {None}
        assert len({event["enqueued_at"] for event in life}) == 1
        told = Counter(event["event_type"] for event in life)
        attempts = sorted(event["attempt"] for event in life if event["event_type"] == "received")
        if sequence % 10 == 3:
            assert told == Counter(enqueued=1, received=3, failed=2, completed=1)
            assert attempts == [1, 2, 3]
        elif sequence % 10 == 7:
            assert told == Counter(enqueued=1, received=1, dead_lettered=1)
        else:
            assert told == Counter(enqueued=1, received=1, completed=1)
        assert all(event["occurred_at"] >= event["enqueued_at"] for event in life)


def test_a_message_in_work_is_in_flight_before_its_acknowledgement_and_received_once(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        stream = connection.jetstream()
        await publish(stream, 2)
        pull = await stream.pull_subscribe_bind("work", "ORDERS")
        (first,) = await pull.fetch(1, timeout=5)
        await asyncio.to_thread(wait_until, lambda: kinds(root)["received"] == 1, "the receipt", seconds=5)
        await first.ack()
        (second,) = await pull.fetch(1, timeout=5)
        await asyncio.sleep(0.05)
        await second.ack()
        await connection.close()

    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work())
        found = wait_finished(root, 2)
    receipts = {event["message_id"]: event for event in found if event["event_type"] == "received"}
    ends = {event["message_id"]: event for event in found if event["event_type"] == "completed"}
    assert len(found) == 6
    assert "seen in flight" in receipts["1"]["reason"]
    assert receipts["2"]["reason"] is None  # a quick acknowledgement told the exact time
    exact = ends["2"]["occurred_at"] - receipts["2"]["occurred_at"]
    assert abs(exact.total_seconds() - ends["2"]["processing_seconds"]) < 1e-5
    assert (ends["1"]["occurred_at"] - receipts["1"]["occurred_at"]).total_seconds() > 0.2


def test_what_waited_or_was_in_work_when_the_tap_came_is_known_from_then_on(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def before() -> Any:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 10)
        return connection

    async def after() -> None:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 10)
        await consume(connection.jetstream(), 20)
        await connection.close()

    make_queue(own_nats_server.url)
    asyncio.run(before())
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(after())
        found = wait_finished(root, 20)
    assert {len([e for e in life if e["event_type"] == "enqueued"]) for life in _lives(found).values()} == {1}
    assert kinds(root)["enqueued"] == 20


def test_each_subscriber_of_a_shared_stream_has_its_own_lives(own_nats_server: NatsServer, tmp_path: Path) -> None:
    root = tmp_path / "lake"

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        stream = connection.jetstream()
        await publish(stream, 20)
        await consume(stream, 20, name="billing")
        await make_consumer(connection, "ORDERS", "audit")  # the tap finds it by itself
        await asyncio.sleep(1.0)
        await consume(stream, 20, name="audit")
        await connection.close()

    async def make() -> None:
        connection = await connect(own_nats_server.url)
        await make_stream(connection, "ORDERS", retention="limits")
        await make_consumer(connection, "ORDERS", "billing")
        await connection.close()

    asyncio.run(make())
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work())
        found = wait_finished(root, 40)
    told = Counter((event["subscriber"], event["event_type"]) for event in found)
    assert told[None, "enqueued"] == 20
    for subscriber in ("billing", "audit"):
        assert told[subscriber, "completed"] == 18
        assert told[subscriber, "dead_lettered"] == 2
        assert told[subscriber, "received"] == 24
    _lives(found)


def test_headers_that_mean_something_to_the_tap_itself_lose_no_arrival(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        stream = connection.jetstream()
        await stream.publish("orders.a", b"", headers={"Tenant": "a"})
        await stream.publish("orders.a", b"", headers={"Tenant": "a", "Nats-Expected-Stream": "ORDERS"})
        await stream.publish("orders.a", b"", headers={"Tenant": "a"})
        await stream.publish("orders.a", b"", headers={"Tenant": "a", "Nats-Expected-Last-Sequence": "3"})
        await asyncio.to_thread(wait_until, lambda: kinds(root)["enqueued"] == 4, "4 arrivals", seconds=12)
        await consume(stream, 4)
        await connection.close()

    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work())
        found = wait_finished(root, 4)
    assert {event["tenant"] for event in found} == {"a"}
    assert kinds(root)["enqueued"] == 4


def test_acknowledgements_that_the_tap_could_not_see_are_made_up_for(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def fill() -> None:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 20)
        await connection.close()

    async def away() -> None:
        connection = await connect(own_nats_server.url)
        await consume(connection.jetstream(), 20)
        await connection.flush()
        await asyncio.sleep(0.5)
        await api(connection, "STREAM.PURGE.SOJOURN_TAP")  # what was told meanwhile is lost
        await connection.close()

    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(fill())
        wait_until(lambda: kinds(root)["enqueued"] == 20, "20 arrivals")
    asyncio.run(away())
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(fill())
        wait_finished(root, 20)
    found = events(root)
    unseen = [event for event in found if event["event_type"] == "completed"]
    assert len(unseen) == 20
    assert {event["attempt"] for event in unseen} == {None}
    assert all("not seen" in event["reason"] for event in unseen)
    (gap,) = Lake(root).read("rejected_records").to_pylist()
    assert "discarded" in gap["reason"]
    assert gap["count"] > 20
    _lives(found)


def test_a_stream_that_is_made_anew_takes_its_unfinished_messages_with_it(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    root = tmp_path / "lake"

    async def fill() -> None:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 5)
        await connection.close()

    async def drop() -> None:
        connection = await connect(own_nats_server.url)
        await api(connection, "STREAM.DELETE.ORDERS")
        await connection.close()

    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(fill())
        wait_until(lambda: kinds(root)["enqueued"] == 5, "5 arrivals")
    asyncio.run(drop())
    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(fill())
        wait_until(lambda: kinds(root)["enqueued"] == 10, "10 arrivals")
    found = events(root)
    assert kinds(root) == Counter(enqueued=10, expired=5)
    assert len({(event["message_id"], event["event_type"]) for event in found}) == 15


def test_what_cannot_be_read_is_kept_whole_and_the_rest_goes_on(own_nats_server: NatsServer, tmp_path: Path) -> None:
    root = tmp_path / "lake"

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        stream = connection.jetstream()
        await publish(stream, 3)
        await connection.publish("sojourn.tap.ORDERS.a", b"\xff\x00", headers={"Nats-Stream": "ORDERS"})
        await connection.publish("$JS.EVENT.METRIC.CONSUMER.ACK.ORDERS.work", b"{")
        await consume(stream, 3)
        await connection.close()

    make_queue(own_nats_server.url)
    for _ in range(2):  # the second run reads nothing twice
        with collecting(settings(own_nats_server.url), root):
            if not events(root):
                asyncio.run(work())
            wait_finished(root, 3)
            wait_until(lambda: Lake(root).read("rejected_records").num_rows == 2, "rejected records")
    rejected = Lake(root).read("rejected_records").to_pylist()
    assert {row["reason"].split(":")[0] for row in rejected} == {"header Nats-Sequence is missing", "not JSON"}
    assert all("subject" in row["raw"] for row in rejected)
    assert kinds(root)["enqueued"] == 3


def test_a_stream_that_republishes_already_is_tapped_where_it_does(own_nats_server: NatsServer, tmp_path: Path) -> None:
    root = tmp_path / "lake"

    async def make() -> None:
        connection = await connect(own_nats_server.url)
        republish = {"src": "orders.>", "dest": "elsewhere.orders.>", "headers_only": True}
        await make_stream(connection, "ORDERS", republish=republish)
        await make_consumer(connection, "ORDERS", "work", sample_freq="100")
        await connection.close()

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 5)
        await consume(connection.jetstream(), 5)
        config = (await api(connection, "STREAM.INFO.ORDERS"))["config"]
        assert config["republish"]["dest"] == "elsewhere.orders.>"
        await connection.close()

    asyncio.run(make())
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work())
        wait_finished(root, 5)
    assert kinds(root)["enqueued"] == 5


def test_a_broker_that_restarts_is_read_on_where_it_was_left(own_nats_server: NatsServer, tmp_path: Path) -> None:
    root = tmp_path / "lake"

    async def work() -> None:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 10)
        await consume(connection.jetstream(), 10)
        await connection.flush()
        await asyncio.sleep(0.3)
        await connection.close()

    make_queue(own_nats_server.url, ack_wait=1_000_000_000)
    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work())
        own_nats_server.stop()
        own_nats_server.start()
        asyncio.run(work())
        found = wait_finished(root, 20)
    assert kinds(root)["enqueued"] == 20
    _lives(found)


def test_a_lake_that_takes_nothing_for_a_while_loses_nothing(
    own_nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    full = threading.Event()
    append = Lake.append

    def append_unless_full(lake: Lake, name: str, *arguments: Any, **options: Any) -> bool:
        if full.is_set():
            raise UserError("no space left on the disk", "free some")
        return append(lake, name, *arguments, **options)

    async def work() -> Counter[str]:
        connection = await connect(own_nats_server.url)
        await publish(connection.jetstream(), 200)
        done = await consume(connection.jetstream(), 200)
        await connection.close()
        return done

    monkeypatch.setattr(Lake, "append", append_unless_full)
    make_queue(own_nats_server.url)
    with collecting(settings(own_nats_server.url, buffer_capacity=50), root):
        full.set()
        done = asyncio.run(work())
        full.clear()
        wait_until(lambda: _ended(root) == 200, "all ends")
    totals = kinds(root)
    for row in Lake(root).read("event_summaries").to_pylist():
        for kind in done:
            totals[kind] += row[kind]
        totals["enqueued"] += row["enqueued"]
    assert totals == done + Counter(enqueued=200)
    assert Lake(root).read("event_summaries").num_rows > 0


def _ended(root: Path) -> int:
    """Messages whose end is known, singly or in summaries."""
    counts, rolled = kinds(root), Lake(root).read("event_summaries").to_pylist()
    return sum(counts[kind] + sum(row[kind] for row in rolled) for kind in ("completed", "dead_lettered"))


@proves("nats", "dead letters", "by the settings")
def test_what_was_recalled_is_forgotten_once_every_tapped_stream_has_it_beside_a_dead_letter_stream(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    async def dead_letters() -> None:
        connection = await connect(own_nats_server.url)
        await make_stream(connection, "DEAD", retention="limits")
        await connection.close()

    make_queue(own_nats_server.url)
    asyncio.run(dead_letters())
    chosen = settings(own_nats_server.url, "ORDERS", {"name": "DEAD", "dead_letter_for": "ORDERS"})
    broker = chosen.brokers[0]
    assert isinstance(broker, NatsBroker)
    lake = Lake(tmp_path / "lake")
    lake.create()
    writer = Writer(lake)
    tap = NatsTap(broker, Context(chosen, writer, SelfMetrics(), Board()))

    async def work() -> None:
        await tap.open()
        try:
            for _ in range(5):
                await tap.step()
        finally:
            await tap.close()

    try:
        asyncio.run(work())
    finally:
        writer.close()
    assert tap._memory is None
