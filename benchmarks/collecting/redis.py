"""Redis: a warm cycle over 10,000 queues of the dyno-queues recipe, beside the client library with the same commands.

A third of the queues is empty, a third holds waiting messages, a third waiting, delayed and unacknowledged ones. Then
the real collecting process samples the same server each second; its memory is what it holds after several cycles.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from benchmarks.collecting.process import collecting, samples_in
from benchmarks.figures import Figure
from benchmarks.processor import memory_mb
from collectors.redis.settings import RedisBroker
from collectors.redis.source import RedisSource
from collectors.samples import Sample
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

QUEUES, CYCLES, PIPELINE = 10_000, 7, 2_000
_KEPT_CYCLES = 8
#: What a client library asks of so many queues; whether samples tell what was put there.
Plainly = Callable[[redis.asyncio.Redis, int], Awaitable[None]]
Check = Callable[[Sequence[Sample], int], None]


def measure(scale: float) -> Iterator[Figure]:
    """Seconds of a cycle, and the memory of a process that samples as many queues."""
    count = max(30, int(QUEUES * scale))
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        server = RedisServer(Path(folder) / "redis", "--appendonly", "no")
        server.start()
        try:
            _fill(server, count)
            ours, plain = asyncio.run(cycles(server, _layout(count), count, _plainly, _check, CYCLES))
            yield Figure(f"redis_{_short(QUEUES)}_queues_seconds", ours, "s", plain)
            yield Figure("collector_rss_mb", _memory(server, Path(folder), count), "MB")
        finally:
            server.stop()


def _short(number: int) -> str:
    return f"{number // 1000}k"


def _fill(server: RedisServer, count: int) -> None:
    now = time.time() * 1000
    with server.client() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(count):
            queue, unack = _keys(number)
            pipe.zadd(queue, {f"message-{number}-{index}": now - 1000 * index for index in range(10)})
            if number % 3 == 0:
                pipe.zadd(queue, {f"delayed-{number}-{index}": now + 3.6e6 for index in range(5)})
                pipe.zadd(unack, {f"taken-{number}-{index}": now + 6e4 for index in range(5)})
        pipe.execute()
    source = RedisSource(RedisBroker(url=server.url))
    found = asyncio.run(_once(source))
    assert found == count, f"{found} samples of {count} queues"
    with server.client() as client:  # known queues that are empty: Redis keeps no empty set
        client.delete(*(key for number in range(2, count, 3) for key in _keys(number)))


async def _once(source: RedisSource) -> int:
    await source.open()
    found = len(await source.read())
    await source.close()
    return found


def _keys(number: int) -> tuple[str, str]:
    return f"app.QUEUE.{{queue-{number}.a}}", f"app.UNACK.{{queue-{number}.a}}.0"


async def cycles(
    server: RedisServer, settings: dict[str, Any], count: int, plainly: Plainly, check: Check, rounds: int
) -> tuple[float, float]:
    """The medians of our cycle and of the client library's, in turn, so that both meet the same machine."""
    source = RedisSource(RedisBroker.model_validate({"url": server.url, **settings}))
    await source.open()
    await source.read()
    client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, protocol=2)
    ours, plain = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        samples = await source.read()
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        await plainly(client, count)
        plain.append(time.perf_counter() - began)
        check(samples, count)
    await client.aclose()
    await source.close()
    return statistics.median(ours), statistics.median(plain)


def _check(samples: Sequence[Sample], count: int) -> None:
    assert len(samples) == count
    assert sum(sample.depth or 0 for sample in samples) == 10 * sum(number % 3 != 2 for number in range(count))


def _layout(count: int) -> dict[str, Any]:
    queues = [f"queue-{number}" for number in range(count)]
    return {"dyno": {"prefix": "app", "queues": queues, "shards": ["a"], "unack_buckets": 1}}


async def _plainly(client: redis.asyncio.Redis, count: int) -> None:
    """The commands of one cycle, their answers dropped."""
    now = int(time.time() * 1000)
    each = 5
    for start in range(0, count, PIPELINE // each):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(count, start + PIPELINE // each)):
            queue, unack = _keys(number)
            pipe.execute_command("ZCOUNT", queue, "-inf", f"({now}")
            pipe.execute_command("ZCOUNT", queue, now, "+inf")
            pipe.execute_command("ZRANGE", queue, 0, 0, "WITHSCORES")
            pipe.execute_command("ZRANGE", queue.replace("QUEUE", "SINCE"), 0, 0, "WITHSCORES")
            pipe.execute_command("ZCARD", unack)
        await pipe.execute(raise_on_error=False)


def _memory(server: RedisServer, folder: Path, count: int) -> float:
    """MB of the real collecting process after some cycles over all queues, found by itself."""
    lake, config = folder / "lake", folder / "sojourn.toml"
    config.write_text(f'[[collect.brokers]]\nkind = "redis"\nname = "bench"\nurl = "{server.url}"\n')
    found = count - len(range(2, count, 3))
    with collecting(config, lake) as pid:
        wait_until(lambda: samples_in(lake) >= _KEPT_CYCLES * found, "samples of every queue", seconds=60, every=0.5)
        return memory_mb(pid)
