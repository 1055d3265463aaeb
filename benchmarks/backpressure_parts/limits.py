"""How long a published limit takes to those who must obey it: 100,000 to one client, 1,000 to 1,000 that poll.

The server is the alert process' own, behind its access control, in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import sojourn
from benchmarks.figures import Figure

REASON = "quiet tenants wait 12 s; sends 120/s; limited to 10/s towards 10/s, its share of 80/s: others ask for 70/s"


def measure(scale: float) -> Iterator[Figure]:
    """The figures; the baseline of the pollers is one poller alone."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    try:
        url = ours.recv()
        yield from _to_one_client(ours, url, int(100_000 * scale))
        ours.send((0, 0.0))
        ours.recv()
        pollers, count = int(1_000 * scale), int(1_000 * scale)
        alone = asyncio.run(_to_pollers(ours, url, 1, count, 1.0))
        together = asyncio.run(_to_pollers(ours, url, pollers, count, 2.0))
        yield Figure("limits_1000_pollers_seconds", together, "s", alone)
    finally:
        server.kill()


def _to_one_client(server: Connection, url: str, count: int) -> Iterator[Figure]:
    with sojourn.Limits(url, poll_seconds=20) as limits:
        _until(lambda: limits.counters()["updates"] == 1)
        server.send((count, 1.0))
        began, published, worked = server.recv()
        worked += time.process_time()
        _until(lambda: limits.counters()["updates"] == 2)
        seconds = time.monotonic() - began
        server.send((None, 0.0))  # only to hear how long the server has worked
        worked = server.recv()[2] + time.process_time() - worked
        if len(limits.in_force()) != count:
            raise SystemExit(f"{len(limits.in_force())} limits arrived, {count} were published")
    yield Figure("limits_100k_seconds", seconds, "s", published - began)
    yield Figure("limits_100k_processor_seconds", worked, "s")


async def _to_pollers(server: Connection, url: str, pollers: int, count: int, rate: float) -> float:
    host, port = url.removeprefix("http://").split(":")
    version = (await _poll(host, int(port), 0, 0))["version"]
    waiting = [asyncio.create_task(_poll(host, int(port), version, 30)) for _ in range(pollers)]
    await asyncio.sleep(2 + pollers / 250)  # until the server holds them all
    server.send((count, rate))
    began, _, _ = await asyncio.to_thread(server.recv)
    answers = await asyncio.gather(*waiting)
    seconds: float = time.monotonic() - began
    if any(answer["size"] < 30 * count for answer in answers):
        raise SystemExit("an answer did not hold all limits")
    return seconds


async def _poll(host: str, port: int, since: int, wait: int) -> dict[str, Any]:
    """One poll on a connection of its own; of an answer that is large only the size is looked at."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /v1/limits?wait={wait}&since={since} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
    size = next(int(value) for name, _, value in lines if name == b"content-length")
    body = await reader.readexactly(size)
    writer.close()
    return (json.loads(body) if since == 0 else {}) | {"size": size}


def _serve(pipe: Connection) -> None:
    from alerts.api import access_controlled, url_of
    from alerts.control.api import make_app
    from alerts.control.board import Board, ServedLimit
    from alerts.settings import AlertSettings
    from lake.web.server import WebServer, listen, served

    board, settings = Board(2_000), AlertSettings()
    app: Any = make_app(board, SimpleNamespace(paused=False))  # type: ignore[arg-type]
    front, listener = access_controlled(app, settings, None, None), listen("127.0.0.1", 0)
    with served(WebServer(front, listener, front.limits)):
        pipe.send(url_of(listener))
        while True:
            count, rate = pipe.recv()
            if count is None:
                pipe.send((0.0, 0.0, time.process_time()))
                continue
            until = datetime.now(UTC) + timedelta(seconds=600)
            limits = [
                ServedLimit("nats", f"q{i % 100}", f"tenant-{i}", rate + i, 10.0, until, f"{REASON} ({i})", f"{i:016x}")
                for i in range(count)
            ]
            began, worked = time.monotonic(), time.process_time()
            board.publish(limits)
            pipe.send((began, time.monotonic(), worked))


def _until(condition: Any) -> None:
    while not condition():
        time.sleep(0.002)
