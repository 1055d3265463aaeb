"""Sidekiq's and BullMQ's layouts: a warm cycle over 1,000 queues, beside the client library with an exporter's reads.

Keys are written as the libraries write them. Of Sidekiq's queues a third is empty, a third holds 10 jobs, a third has
one at work; 20 processes report, 500 jobs are to be retried. Of BullMQ's, a third is empty, a third holds 10 jobs that
wait, a third has one active, two delayed and one failed. The baseline asks what exporters of these libraries ask:
lengths and the head of each list (Sidekiq), the counts of each state (BullMQ), and no age beyond that.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import redis
import redis.asyncio

from benchmarks.collecting.redis import cycles
from benchmarks.figures import Figure
from collectors.samples import Sample
from tests.support.redis import RedisServer

QUEUES, CYCLES, PROCESSES, RETRIES = 1_000, 9, 20, 500


def measure(scale: float) -> Iterator[Figure]:
    """Seconds of a cycle in either layout, how far an age was off at most, and what our process grew by."""
    count = max(30, int(QUEUES * scale))
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        server = RedisServer(Path(folder) / "redis", "--appendonly", "no")
        server.start()
        try:
            for name, fill, plainly in (("sidekiq", _sidekiq, _plain_sidekiq), ("bullmq", fill_bullmq, _plain_bullmq)):
                with server.client() as client:
                    client.flushall()
                    ages = _Ages(fill(client, count))
                before = psutil.Process().memory_info().rss
                ours, plain = asyncio.run(cycles(server, {name: {}}, count, plainly, ages.check, CYCLES))
                yield Figure(f"{name}_1k_queues_seconds", ours, "s", plain)
                yield Figure(f"{name}_1k_queues_age_error_seconds", ages.error, "s")
                grown = max(0, psutil.Process().memory_info().rss - before) / 1e6
                yield Figure(f"{name}_1k_queues_grown_mb", grown, "MB")
        finally:
            server.stop()


class _Ages:
    """Holds samples to what was made; the oldest job of every queue that has any was enqueued at ``oldest``."""

    def __init__(self, oldest: float) -> None:
        self._oldest = oldest
        self.error = 0.0

    def check(self, samples: Sequence[Sample], count: int) -> None:
        """Raise where counts are others; note the largest error of an age."""
        told = [sample for sample in samples if sample.dead_letter_for is None]
        assert len(told) == count
        assert sum(sample.depth or 0 for sample in told) == 10 * len(range(1, count, 3))
        assert sum(sample.in_flight or 0 for sample in told) == len(range(2, count, 3))
        for sample in told:
            assert sample.oldest_age_seconds is not None
            held = bool(sample.depth or sample.in_flight)
            age = sample.sampled_at / 1e6 - self._oldest if held else 0.0
            self.error = max(self.error, abs(sample.oldest_age_seconds - age))


def _sidekiq(client: redis.Redis, count: int) -> float:
    now, pipe = time.time(), client.pipeline(transaction=False)

    def job(number: int, **more: Any) -> str:
        whole = {
            "class": "Work",
            "args": [{"tenant": "acme"}, 1],
            "queue": f"queue-{number}",
            "jid": "0123456789abcdef",
        }
        return json.dumps(whole | {"created_at": now - 60, "enqueued_at": now - 60} | more)

    for number in range(count):
        pipe.sadd("queues", f"queue-{number}")
        if number % 3 == 1:
            pipe.lpush(f"queue:queue-{number}", *(job(number, enqueued_at=now - 60 + each) for each in range(10)))
        if number % 3 == 2:
            work = {"queue": f"queue-{number}", "payload": job(number), "run_at": int(now) - 5}
            pipe.hset(f"host:{number % PROCESSES}:work", f"thread-{number}", json.dumps(work))
    for number in range(PROCESSES):
        mine = [f"queue-{queue}" for queue in range(count)]
        info = {"concurrency": 50, "queues": mine, "hostname": "host", "pid": number}
        pipe.sadd("processes", f"host:{number}")
        told = {"info": json.dumps(info), "busy": 1, "beat": now + 60, "quiet": "false"}
        pipe.hset(f"host:{number}", mapping=told)
    later = {job(number % count, jid=str(number), retry_count=1): now + 900 for number in range(RETRIES)}
    pipe.zadd("retry", later)
    pipe.execute()
    return now - 60


async def _plain_sidekiq(client: redis.asyncio.Redis, count: int) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        pipe.llen(f"queue:queue-{number}")
        pipe.lrange(f"queue:queue-{number}", -1, -1)
    for number in range(PROCESSES):
        pipe.hgetall(f"host:{number}")
        pipe.hgetall(f"host:{number}:work")
    for name in ("schedule", "retry", "dead"):
        pipe.zcard(name)
    await pipe.execute(raise_on_error=False)


def fill_bullmq(client: redis.Redis, count: int) -> float:
    """Make ``count`` queues as BullMQ keeps them; the unix time at which the oldest job of each was enqueued."""
    now, pipe = int(time.time() * 1000), client.pipeline(transaction=False)
    for number in range(count):
        base = f"bull:queue-{number}"
        pipe.hset(f"{base}:meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:6.7.0"})
        held = 10 if number % 3 == 1 else 4 if number % 3 == 2 else 0
        for each in range(held):
            fields = {"name": "work", "data": '{"tenant": {"id": "acme"}}', "opts": '{"attempts":3}'}
            pipe.hset(f"{base}:{each}", mapping={**fields, "timestamp": now - 60_000 + each, "delay": 0, "priority": 0})
        if held == 10:
            pipe.lpush(f"{base}:wait", *range(10))
        elif held:
            pipe.hset(f"{base}:0", "processedOn", now - 5_000)
            pipe.lpush(f"{base}:active", 0)
            pipe.zadd(f"{base}:delayed", {"1": (now + 900_000) * 4096, "2": (now + 900_000) * 4096 + 1})
            pipe.zadd(f"{base}:failed", {"3": now})
    pipe.execute()
    return now / 1000 - 60


async def _plain_bullmq(client: redis.asyncio.Redis, count: int) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        base = f"bull:queue-{number}"
        for name in ("wait", "paused", "active"):
            pipe.llen(f"{base}:{name}")
        for name in ("prioritized", "delayed", "failed", "completed", "waiting-children"):
            pipe.zcard(f"{base}:{name}")
    await pipe.execute(raise_on_error=False)
