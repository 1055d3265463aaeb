"""Peers beside ours, over 1,000 queues: rq-exporter (a scrape), Flower's lengths, BullMQ's own metrics for Prometheus.

Of the queues a third is empty, a third holds 10 jobs that wait, a third has others at work. A peer must tell as many
waiting jobs as there are. The baseline of each figure is our cycle over the same server, which tells ages, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from benchmarks.collecting.exporters import answered, scraped
from benchmarks.collecting.jobs_on_redis import QUEUES, fill_bullmq
from benchmarks.figures import Figure
from collectors.redis.settings import RedisBroker
from collectors.redis.source import RedisSource
from tests.support.bullmq import EXAMPLE
from tests.support.ports import free_ports
from tests.support.programs import node, node_folder, python_packages
from tests.support.redis import RedisServer

ROUNDS = 5
_RQ, _FLOWER = (Path(__file__).with_name("peers") / name for name in ("rq", "flower"))
#: Asks BullMQ for its metrics of every queue, as an application that serves them does.
_BULLMQ = """
import { Queue } from "bullmq";
const [rounds, count] = process.argv.slice(1).map(Number);
const connection = { url: process.env.REDIS_URL };
const queues = Array.from({ length: count }, (_, number) => new Queue(`queue-${number}`, { connection }));
const seconds = [];
let waiting = 0;
for (let round = 0; round < rounds; round++) {
  const began = process.hrtime.bigint();
  const pages = await Promise.all(queues.map((queue) => queue.exportPrometheusMetrics()));
  seconds.push(Number(process.hrtime.bigint() - began) / 1e9);
  const told = pages.join("\\n").matchAll(/state="waiting"[^}]*} (\\d+)/g);
  waiting = [...told].reduce((sum, [, number]) => sum + Number(number), 0);
}
console.log(JSON.stringify({ seconds, waiting }));
process.exit(0);
"""


def measure(scale: float) -> Iterator[Figure]:
    """Seconds that a peer takes, beside ours."""
    count = max(30, int(QUEUES * scale))
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        server = RedisServer(Path(folder) / "redis", "--appendonly", "no")
        server.start()
        try:
            with server.client() as client:
                _fill_rq(client, count)
            ours = asyncio.run(_ours(server, {"rq": {}}, count))
            yield Figure("rq_exporter_1k_queues_seconds", _rq_exporter(server, count), "s", ours)
            with server.client() as client:
                client.flushall()
                _fill_celery(client, count)
            names = [f"queue-{number}" for number in range(count)]
            ours = asyncio.run(_ours(server, {"celery": {"queues": names}}, count))
            yield Figure("flower_1k_queues_seconds", _flower(server, count), "s", ours)
            with server.client() as client:
                client.flushall()
                fill_bullmq(client, count)
            ours = asyncio.run(_ours(server, {"bullmq": {}}, count))
            yield Figure("bullmq_metrics_1k_queues_seconds", _bullmq(server, count), "s", ours)
        finally:
            server.stop()


def _waiting(count: int) -> int:
    return 10 * len(range(1, count, 3))


async def _ours(server: RedisServer, settings: dict[str, Any], count: int) -> float:
    source = RedisSource(RedisBroker.model_validate({"url": server.url, **settings}))
    await source.open()
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        samples = [sample for sample in await source.read() if sample.dead_letter_for is None]
        seconds.append(time.perf_counter() - began)
        assert sum(sample.depth or 0 for sample in samples) == _waiting(count)
    await source.close()
    return statistics.median(seconds[1:])


def _fill_rq(client: redis.Redis, count: int) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        pipe.sadd("rq:queues", f"rq:queue:queue-{number}")
        held = 10 if number % 3 == 1 else 1 if number % 3 == 2 else 0
        for each in range(held):
            job = f"{number}-{each}"
            fields = {"created_at": "2026-01-01T00:00:00.000000Z", "enqueued_at": "2026-01-01T00:00:00.000000Z"}
            pipe.hset(f"rq:job:{job}", mapping={**fields, "status": "queued", "origin": f"queue-{number}"})
            if held == 10:
                pipe.rpush(f"rq:queue:queue-{number}", job)
            else:
                pipe.zadd(f"rq:wip:queue-{number}", {job: time.time() + 3600})
    pipe.execute()


def _rq_exporter(server: RedisServer, count: int) -> float:
    """Seconds of a scrape."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "rq_exporter", "--host", "127.0.0.1", "--port", str(port)]
    seconds, told = scraped(
        [*command, "--redis-url", server.url],
        {"PYTHONPATH": str(python_packages(_RQ))},
        port,
        lambda line: line.startswith("rq_jobs{") and 'status="queued"' in line,
    )
    assert told == _waiting(count), (told, _waiting(count))
    return seconds


def _fill_celery(client: redis.Redis, count: int) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        queue = f"queue-{number}"
        for each in range(10 if number % 3 == 1 else 1 if number % 3 == 2 else 0):
            tag = f"{number}-{each}"
            told = {"exchange": "", "routing_key": queue}
            properties = {"delivery_tag": tag, "delivery_info": told, "priority": 0}
            message = {"body": "W10=", "headers": {"id": tag, "task": "work"}, "properties": properties}
            if number % 3 == 1:
                pipe.lpush(queue, json.dumps(message))
            else:
                pipe.hset("unacked", tag, json.dumps([message, "", queue]))
    pipe.execute()


def _flower(server: RedisServer, count: int) -> float:
    """Seconds of Flower's answer with the lengths of all queues."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "celery", "-A", "many_queues", "flower", "--address=127.0.0.1", f"--port={port}"]
    path = os.pathsep.join([str(python_packages(_FLOWER)), str(_FLOWER)])
    environment = {"PYTHONPATH": path, "REDIS_URL": server.url, "QUEUES": str(count), "FLOWER_UNAUTHENTICATED_API": "1"}
    seconds, told = answered(command, environment, port, "/api/queues/length")
    waiting = sum(one["messages"] for one in json.loads(told)["active_queues"])
    assert waiting == _waiting(count), (waiting, _waiting(count))
    return seconds


def _bullmq(server: RedisServer, count: int) -> float:
    """Seconds until BullMQ has told the metrics of all queues."""
    command = [str(node()), "--input-type=module", "--eval", _BULLMQ, "--", str(ROUNDS), str(count)]
    environment = {**os.environ, "REDIS_URL": server.url}
    done = subprocess.run(
        command, env=environment, cwd=node_folder(EXAMPLE), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["waiting"] == _waiting(count), told
    return statistics.median(told["seconds"][1:])
