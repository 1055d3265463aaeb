"""SIGKILL of the collecting process at random instants neither loses nor doubles an event."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lake.store import Lake
from tests.collectors.support import (
    collecting,
    connect,
    consume,
    events,
    make_queue,
    publish,
    settings,
    start,
    wait_attached,
)
from tests.support.deep import examples
from tests.support.nats import NatsServer
from tests.support.waiting import wait_until

KILLS = 3


@pytest.mark.parametrize("capacity", [200_000, 40][: examples(1, 2)])
def test_killing_the_collector_at_any_instant_neither_loses_nor_doubles(
    own_nats_server: NatsServer, tmp_path: Path, capacity: int
) -> None:
    chance = random.Random(capacity)
    root = tmp_path / "lake"
    chosen = settings(own_nats_server.url, flush_interval=0.05, buffer_capacity=capacity, compact_every=10)

    async def under_load() -> tuple[int, Counter[str]]:
        connection, enough = await connect(own_nats_server.url), asyncio.Event()
        stream = connection.jetstream()
        producing = asyncio.create_task(_produce(stream, enough))
        taking = asyncio.create_task(consume(stream, None, enough=producing))
        collector = first
        for _ in range(KILLS):
            before = _version(root)
            await asyncio.to_thread(wait_until, lambda: _version(root) > before, "a commit", seconds=60)  # noqa: B023
            await asyncio.sleep(chance.uniform(0.0, 0.4))
            collector.kill()
            collector.wait()
            collector = start(chosen, root)
        enough.set()
        published, done = await producing, await taking
        collector.kill()
        collector.wait()
        await connection.close()
        return published, done

    make_queue(own_nats_server.url)
    first = start(chosen, root)
    wait_attached(chosen)
    published, done = asyncio.run(under_load())
    with collecting(chosen, root):
        _wait_for_ends(root, published)
    assert _totals(root) == done + Counter(enqueued=published)
    found = events(root)
    assert len({event["event_id"] for event in found}) == len(found)
    if capacity < 1000:
        assert Lake(root).read("event_summaries").num_rows > 0
    else:
        assert len(found) == sum(done.values()) + published
    assert set(_backlog(root).values()) == {0}


async def _produce(stream: Any, enough: asyncio.Event) -> int:
    published = 0
    while not enough.is_set():
        await publish(stream, 10)
        published += 10
        await asyncio.sleep(0.01)
    return published


def _version(root: Path) -> int:
    table = root / "bronze/message_events/_delta_log"
    return len(list(table.glob("*.json"))) if table.exists() else 0


def _wait_for_ends(root: Path, finished: int) -> None:
    wait_until(lambda: _totals(root)["completed"] + _totals(root)["dead_lettered"] >= finished, "all ends", seconds=30)


def _totals(root: Path) -> Counter[str]:
    """Events of each type, singly or in summaries."""
    totals: Counter[str] = Counter(event["event_type"] for event in events(root))
    for row in Lake(root).read("event_summaries").to_pylist():
        for kind in ("enqueued", "received", "completed", "failed", "dead_lettered", "expired"):
            totals[kind] += row[kind]
    return +totals


def _backlog(root: Path) -> Counter[Any]:
    """What is left of each tenant's messages, by the second in which they were enqueued."""
    left: Counter[Any] = Counter()
    for event in events(root):
        second = int(event["enqueued_at"].timestamp())
        if event["event_type"] == "enqueued":
            left[event["tenant"], second] += 1
        elif event["event_type"] in ("completed", "dead_lettered"):
            left[event["tenant"], second] -= 1
    for row in Lake(root).read("event_summaries").to_pylist():
        for cell in row["backlog_cells"] or ():
            left[row["tenant"], cell["second"]] += cell["net"]
    return left
