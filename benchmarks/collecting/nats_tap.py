"""NATS: what the tap reads into durable bronze, beside a plain client that reads the same stream and drops it.

The collecting process is the real one. It attaches itself, is stopped, misses the lives of many messages (published,
delivered, acknowledged), and is started again: what is measured is how fast it catches up, from its first commit of
these events to its last. Each message is two records of the tap and three events in the lake.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.collecting.process import collecting
from benchmarks.figures import Figure
from benchmarks.processor import memory_mb
from tests.collectors.support import api, connect, make_consumer, make_stream
from tests.support.nats import NatsServer
from tests.support.waiting import wait_until

MESSAGES, TENANTS, AHEAD, PULL, ASKED = 200_000, 100, 2_000, 500, 4_096
_EVENTS = 3


def measure(scale: float) -> Iterator[Figure]:
    """Messages a second into bronze, and the collecting process's largest memory meanwhile."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        server = NatsServer(Path(folder) / "nats")
        server.start()
        try:
            yield from _measure(server, Path(folder), max(2_000, int(MESSAGES * scale)))
        finally:
            server.stop()


def _measure(server: NatsServer, folder: Path, messages: int) -> Iterator[Figure]:
    lake = folder / "lake"
    config = folder / "sojourn.toml"
    config.write_text(f'[[collect.brokers]]\nname = "mq"\nurl = "{server.url}"\nstreams = ["ORDERS"]\n')
    asyncio.run(_make(server.url))
    with collecting(config, lake):
        wait_until(lambda: asyncio.run(_attached(server.url)), "the tap to be attached")
    asyncio.run(_live(server.url, messages))
    records, plain = asyncio.run(_read_plainly(server.url))
    assert records >= 2 * messages, f"the tap holds {records} records of {messages} messages"
    with collecting(config, lake) as pid:
        wait_until(lambda: _rows(lake) >= _EVENTS * messages, "every event in bronze", seconds=110, every=0.1)
        largest = memory_mb(pid, "VmHWM")
    commits = _commits(lake)
    events = sum(rows for _, rows in commits)
    assert events == _EVENTS * messages, f"{events} events of {messages} messages"
    (began, first), (ended, _) = commits[0], commits[-1]
    yield Figure("tap_messages_per_second", (events - first) / _EVENTS / (ended - began), "messages/s", plain)
    yield Figure("tap_loaded_rss_mb", largest, "MB")


async def _make(url: str) -> None:
    connection = await connect(url)
    await make_stream(connection, "ORDERS")
    await make_consumer(connection, "ORDERS", "work", max_ack_pending=4 * AHEAD)
    await connection.close()


async def _attached(url: str) -> bool:
    connection = await connect(url)
    try:
        stream = await api(connection, "STREAM.INFO.ORDERS")
        consumer = await api(connection, "CONSUMER.INFO.ORDERS.work")
        return bool(stream["config"].get("republish")) and bool(consumer["config"].get("sample_freq"))
    finally:
        await connection.close()


async def _live(url: str, messages: int) -> None:
    """Publish, deliver and acknowledge ``messages``, at most AHEAD of them waiting."""
    producer, consumer = await connect(url), await connect(url)
    done, room = 0, asyncio.Event()

    async def acknowledge(message: Any) -> None:
        nonlocal done
        if message.reply and len(message.reply.split(".")) > 8:
            await consumer.publish(message.reply, b"+ACK")
            done += 1
            room.set()

    inbox = consumer.new_inbox()
    await consumer.subscribe(inbox, cb=acknowledge, pending_msgs_limit=-1, pending_bytes_limit=-1)
    request = json.dumps({"batch": 1_000_000, "expires": 110_000_000_000}).encode()
    await consumer.publish("$JS.API.CONSUMER.MSG.NEXT.ORDERS.work", request, reply=inbox)
    for number in range(messages):
        tenant = f"tenant-{number % TENANTS}"
        await producer.publish(f"orders.{number % 10}", b"x" * 100, headers={"Tenant": tenant})
        if number % PULL == 0:
            await producer.flush()
        while number - done > AHEAD:
            room.clear()
            await asyncio.wait_for(room.wait(), 10)
    while done < messages:
        room.clear()
        await asyncio.wait_for(room.wait(), 10)
    await consumer.flush()
    await asyncio.sleep(0.5)
    await producer.close()
    await consumer.close()


async def _read_plainly(url: str) -> tuple[int, float]:
    """Records in the tap, and how many messages' worth a second the plain client reads."""
    connection = await connect(url)
    total = int((await api(connection, "STREAM.INFO.SOJOURN_TAP"))["state"]["messages"])
    config = {"ack_policy": "none", "deliver_policy": "all", "mem_storage": True}
    made = await api(connection, "CONSUMER.CREATE.SOJOURN_TAP", {"stream_name": "SOJOURN_TAP", "config": config})
    read, whole, inbox = 0, asyncio.Event(), connection.new_inbox()
    request = json.dumps({"batch": ASKED, "expires": 100_000_000_000}).encode()

    async def ask() -> None:
        await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.SOJOURN_TAP.{made['name']}", request, reply=inbox)

    async def count(message: Any) -> None:
        nonlocal read
        read += 1
        if read == total:
            whole.set()
        elif read % ASKED == 0:
            await ask()

    await connection.subscribe(inbox, cb=count, pending_msgs_limit=-1, pending_bytes_limit=-1)
    began = time.perf_counter()
    await ask()
    await ask()
    await asyncio.wait_for(whole.wait(), 100)
    seconds = time.perf_counter() - began
    await connection.close()
    return total, total / 2 / seconds


def _commits(lake: Path) -> list[tuple[float, int]]:
    """When each commit of events became durable, and its rows."""
    commits = []
    for path in sorted((lake / "bronze/message_events/_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        adds = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
        if adds and not any("remove" in action for action in actions):
            commits.append((path.stat().st_mtime, sum(stats["numRecords"] for stats in adds)))
    return commits


def _rows(lake: Path) -> int:
    return sum(rows for _, rows in _commits(lake))
