"""NATS: one cycle over 10,000 consumers, beside a client that makes only the same requests; and the process's memory.

Two shapes: 100 streams of 100 consumers, and 10,000 streams of one (the figures' goal holds for both; the dearer one
is told as ``nats_10k_consumers_seconds``). A message waits before every consumer.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.collecting.process import collecting
from benchmarks.figures import Figure
from benchmarks.processor import memory_mb
from brokers.nats.client import Client
from collectors.nats.exchange import Exchange
from collectors.nats.sampler import NatsSource
from collectors.nats.settings import NatsBroker
from tests.collectors.support import api, connect
from tests.support.nats import NatsServer

CONSUMERS, CYCLES, COLLECTING_SECONDS = 10_000, 3, 12.0


def measure(scale: float) -> Iterator[Figure]:
    """Seconds a warm cycle takes, and the collecting process's largest memory over some cycles."""
    consumers = max(100, int(CONSUMERS * scale))
    for name, streams in (("nats_10k_consumers_of_100_streams", 100), ("nats_10k_consumers", consumers)):
        with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
            server = NatsServer(Path(folder) / "nats")
            server.start()
            try:
                cycle, plain = asyncio.run(_cycles(server.url, streams, consumers // streams))
                yield Figure(f"{name}_seconds", cycle, "s", plain)
                if streams == consumers:
                    held, most = _memory(server.url, Path(folder))
                    yield Figure("nats_rss_mb", held, "MB")
                    yield Figure("nats_peak_rss_mb", most, "MB")
            finally:
                server.stop()


async def _cycles(url: str, streams: int, consumers: int) -> tuple[float, float]:
    broker = NatsBroker(url=url)
    client = Client(broker, "bench")
    await client.open()
    exchange = Exchange(client)
    await exchange.open()
    await exchange.ask([_stream(number) for number in range(streams)])
    await exchange.ask([_consumer(stream, number) for stream in range(streams) for number in range(consumers)])
    for number in range(streams):
        await client.connection.publish(f"s{number}.a", b"x")
    await client.connection.flush()
    await client.close()
    source = NatsSource(broker)
    await source.open()
    found = await source.read()  # the first cycle looks at every head
    assert len(found) == streams * consumers, f"{len(found)} samples"
    cycles, plain = [], []
    for _ in range(CYCLES):
        began = time.perf_counter()
        await source.read()
        cycles.append(time.perf_counter() - began)
        plain.append(await _plainly(url, streams))
    await source.close()
    return statistics.median(cycles), statistics.median(plain)


async def _plainly(url: str, streams: int) -> float:
    """Seconds that the client library takes for the same lists, as many requests at once, nothing made of them."""
    connection = await connect(url)
    room = asyncio.Semaphore(64)

    async def get(subject: str, body: Any) -> None:
        async with room:
            await api(connection, subject, body)

    began = time.perf_counter()
    await asyncio.gather(*(get("STREAM.LIST", {"offset": offset}) for offset in range(0, streams, 256)))
    await asyncio.gather(*(get(f"CONSUMER.LIST.S{number}", {"offset": 0}) for number in range(streams)))
    seconds = time.perf_counter() - began
    await connection.close()
    return seconds


def _memory(url: str, folder: Path) -> tuple[float, float]:
    """What the real collecting process holds, and the most it ever held, sampling each second and writing to a lake."""
    config = folder / "sojourn.toml"
    config.write_text(f'[collect]\nsample_interval = 1.0\n[[collect.brokers]]\nname = "mq"\nurl = "{url}"\n')
    with collecting(config, folder / "lake") as pid:
        time.sleep(COLLECTING_SECONDS)
        sizes = memory_mb(pid, "VmRSS"), memory_mb(pid, "VmHWM")
    written = list((folder / "lake/bronze/queue_samples/_delta_log").glob("*.json"))
    assert len(written) > 2, "the collecting process wrote no samples"
    return sizes


def _stream(number: int) -> tuple[str, dict[str, Any]]:
    config = {"name": f"S{number}", "subjects": [f"s{number}.>"], "retention": "limits", "storage": "memory"}
    return f"STREAM.CREATE.S{number}", config


def _consumer(stream: int, number: int) -> tuple[str, dict[str, Any]]:
    name = f"c{number}"
    config = {"durable_name": name, "name": name, "ack_policy": "explicit", "mem_storage": True}
    return f"CONSUMER.CREATE.S{stream}.{name}", {"stream_name": f"S{stream}", "config": config}
