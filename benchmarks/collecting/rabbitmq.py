"""RabbitMQ: a warm cycle over 10,000 queues by each of its APIs, beside a raw client that fetches the same URL.

A tenth of the queues holds messages. ``rabbitmq_10k_queues_seconds`` is by the Prometheus metrics, on which ``auto``
settles at this number of queues; then by the management API, whose JSON the raw client parses too. Afterwards the real
collecting process samples the same node by ``auto``; its memory is what it holds after several cycles.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from benchmarks.collecting.process import collecting, samples_in
from benchmarks.figures import Figure
from benchmarks.processor import memory_mb
from collectors.rabbitmq import client as ours
from collectors.rabbitmq.settings import RabbitBroker
from collectors.rabbitmq.source import RabbitSource
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until

QUEUES, CYCLES, CONNECTIONS = 10_000, 5, 4
_KEPT_CYCLES = 6
_PASSWORD = "SOJOURN_BENCH_RABBITMQ"


def measure(scale: float) -> Iterator[Figure]:
    """Seconds of a cycle, and the memory of a process that samples as many queues."""
    count = max(40, int(QUEUES * scale))
    os.environ[_PASSWORD] = RabbitServer.password
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        server = RabbitServer(Path(folder) / "rabbitmq", slow=True)
        server.start()
        try:
            _fill(server, count)
            names = {
                "prometheus": "rabbitmq_10k_queues_seconds",
                "management": "rabbitmq_10k_queues_management_seconds",
            }
            for api, name in names.items():
                cycle, raw = asyncio.run(_cycles(server, api, count))
                yield Figure(name, cycle, "s", raw)
            yield Figure("rabbitmq_rss_mb", _memory(server, Path(folder), count), "MB")
        finally:
            server.kill()


def _settings(server: RabbitServer, api: str) -> dict[str, Any]:
    return {
        "kind": "rabbitmq",
        "name": "mq",
        "url": server.url,
        "metrics_urls": [server.metrics_url],
        "user": server.user,
        "password": {"env": _PASSWORD},
        "api": api,
        "timeout": 60.0,
    }


def _fill(server: RabbitServer, count: int) -> None:
    def declare(first: int) -> None:
        with server.connect() as connection:
            channel = connection.channel()
            for number in range(first, count, CONNECTIONS):
                channel.queue_declare(f"queue-{number}", arguments={"x-max-length": 1000})
                if number % 10 == 0:
                    channel.basic_publish("", f"queue-{number}", b"x")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(declare, range(CONNECTIONS)))

    def told() -> bool:
        rows = server.api("GET", "queues?columns=name,messages_ready")
        return sum(row.get("messages_ready", 0) for row in rows) == len(range(0, count, 10)) and len(rows) == count

    wait_until(told, "the statistics of every queue", seconds=60, every=1)


async def _cycles(server: RabbitServer, api: str, count: int) -> tuple[float, float]:
    """Medians of ours and of the raw client's, taken in turns."""
    source = RabbitSource(RabbitBroker.model_validate(_settings(server, api)), 2.5)
    await source.open()
    await source.read()  # warm: what is rarely read, connections, labels
    mine, plain = [], []
    with httpx.Client(auth=(server.user, server.password), timeout=60) as http:
        for _ in range(CYCLES):
            started = time.perf_counter()
            found = await source.read()
            mine.append(time.perf_counter() - started)
            assert len(found) == count and sum(sample.depth or 0 for sample in found) == len(range(0, count, 10))
            started = time.perf_counter()
            _raw(server, api)(http)
            plain.append(time.perf_counter() - started)
    await source.close()
    return statistics.median(mine), statistics.median(plain)


def _raw(server: RabbitServer, api: str) -> Callable[[httpx.Client], Any]:
    if api == "management":
        columns = ",".join(ours.STATISTICS)
        return lambda http: json.loads(http.get(f"{server.url}/api/queues?columns={columns}").content)
    families = "&".join(f"family={family}" for family in ours.METRIC_FAMILIES)
    return lambda http: http.get(f"{server.metrics_url}/metrics/detailed?{families}").content


def _memory(server: RabbitServer, folder: Path, count: int) -> float:
    """Megabytes that ``sojourn``'s collecting process holds once it has sampled for a while."""
    lake, config = folder / "lake", folder / "sojourn.toml"
    settings = _settings(server, "auto")
    values = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if key != "password"]
    secret = f'password = {{ env = "{_PASSWORD}" }}'
    config.write_text("\n".join(["[[collect.brokers]]", *values, secret, ""]))
    with collecting(config, lake) as pid:
        wait_until(lambda: samples_in(lake) >= _KEPT_CYCLES * count, "samples of several cycles", seconds=110, every=1)
        return memory_mb(pid)
