"""The tap against a real server: the events that it records are exactly what the messages lived through."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

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
from tests.support.nats import NatsServer
from tests.support.waiting import wait_until


def _lives(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    assert len({event["event_id"] for event in found}) == len(found)
    lives: dict[str, list[dict[str, Any]]] = {}
    for event in found:
        lives.setdefault(event["message_id"], []).append(event)
    return lives


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
