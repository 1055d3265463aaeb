"""The collecting process at rest: one NATS broker of 100 queues, 100 messages a second tapped, sampled each second.

The yardstick is the broker's own processor time meanwhile, which each message costs as well.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.collecting.process import collecting
from benchmarks.figures import Figure
from lake.store import Lake
from tests.collectors.support import api, connect, make_consumer, make_stream
from tests.support.nats import NatsServer
from tests.support.waiting import wait_until

_QUEUES, _RATE = 100, 100.0
_WARM_SECONDS, _SECONDS = 15.0, 40.0


def measure(scale: float) -> Iterator[Figure]:
    """Processor seconds a second."""
    queues = max(1, round(_QUEUES * scale))
    names = [f"Q{number:03}" for number in range(queues)]
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        root = Path(folder)
        with NatsServer(root / "nats") as server:
            asyncio.run(_make(server.url, names))
            config = root / "sojourn.toml"
            streams = ", ".join(f'"{name}"' for name in names)
            config.write_text(f'[[collect.brokers]]\nname = "mq"\nurl = "{server.url}"\nstreams = [{streams}]\n')
            with collecting(config, root / "lake") as pid:
                wait_until(lambda: asyncio.run(_attached(server.url, names)), "the tap to be attached", seconds=120)
                ours, theirs, sent = asyncio.run(_work(server.url, names, pid, server))
                done = lambda: _rows(root / "lake") >= 3 * sent  # noqa: E731
                wait_until(done, "every event in bronze", seconds=60, every=0.5)
    yield Figure("collect_idle_cores", ours, "cores", theirs)


async def _make(url: str, names: list[str]) -> None:
    connection = await connect(url)
    for name in names:
        await make_stream(connection, name)
        await make_consumer(connection, name, "work")
    await connection.close()


async def _attached(url: str, names: list[str]) -> bool:
    connection = await connect(url)
    try:
        last = await api(connection, f"CONSUMER.INFO.{names[-1]}.work")
        return bool(last["config"].get("sample_freq"))
    finally:
        await connection.close()


async def _work(url: str, names: list[str], pid: int, server: Any) -> tuple[float, float, int]:
    """Publish, fetch and acknowledge; the cores that the collectors and the server took, and how many were sent."""
    connection = await connect(url)
    stream = connection.jetstream()
    pulls = [await stream.pull_subscribe_bind("work", name) for name in names]
    watched = psutil.Process(pid), psutil.Process(server.process_id)
    began, sent, before = time.monotonic(), 0, (0.0, 0.0)
    measured_from = began + _WARM_SECONDS
    started = False
    while (now := time.monotonic()) < measured_from + _SECONDS:
        if not started and now >= measured_from:
            started, before, measured_from = True, _processor(watched), now
        place = sent % len(names)
        await stream.publish(f"{names[place].lower()}.a", b"x")
        (message,) = await pulls[place].fetch(1, timeout=5)
        await message.ack()
        sent += 1
        await asyncio.sleep(max(0.0, began + sent / _RATE - time.monotonic()))
    after, seconds = _processor(watched), time.monotonic() - measured_from
    await connection.close()
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds, sent


def _processor(watched: tuple[psutil.Process, psutil.Process]) -> tuple[float, float]:
    ours, theirs = (sum(process.cpu_times()[:2]) for process in watched)
    return ours, theirs


def _rows(root: Path) -> int:
    lake = Lake(root)
    return int(lake.read("message_events", columns=["attempt"]).num_rows) if lake.exists("message_events") else 0
