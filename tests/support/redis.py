"""A real Redis server on the loopback, ended by its own process id."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import redis

from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.servers import program
from tests.support.waiting import wait_until


class RedisServer(ServerProcess):
    """One ``redis-server``; its port and what it saved outlast ``kill`` and ``start``.

    ``arguments`` are the server's own, as in ``("--requirepass", "secret")``; ``tls``: it speaks nothing else.
    """

    def __init__(self, folder: Path, *arguments: str, password: str | None = None, tls: Path | None = None) -> None:
        super().__init__(folder)
        self._arguments = arguments
        self._password = password
        self._tls = tls
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """Its process; None if it does not run."""
        return self._process.pid if self._process is not None else None

    def client(self, **options: Any) -> redis.Redis:
        """A client of an application; close it."""
        if self._tls is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self._tls / "ca.crt")}
        return redis.Redis(host="127.0.0.1", port=self.port, password=self._password, **options)

    def start(self, *, ready: bool = True) -> None:
        """Start the server and, unless told otherwise, wait until it answers."""
        assert self._process is None, "it runs already"
        self._folder.mkdir(parents=True, exist_ok=True)
        port = ["--port", "0", "--tls-port", str(self.port)] if self._tls else ["--port", str(self.port)]
        command = [str(program("redis-server")), *port, "--bind", "127.0.0.1", "--dir", str(self._folder)]
        command += ["--save", "", "--daemonize", "no", *self._arguments]
        if self._password is not None:
            command += ["--requirepass", self._password]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            wait_until(self._ready, "redis-server to be ready", every=0.01)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"redis-server ended:\n{self.log}"
        with self.client(socket_timeout=2) as client:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.TimeoutError):
                return False


def prepare(server: RedisServer) -> dict[str, dict[str, int]]:
    """Make a queue in two layouts: name → (depth, in flight, delayed) as every reading of them must tell."""
    with server.client() as client:
        seconds, micros = client.time()
        now = seconds * 1000 + micros // 1000
        client.zadd("app.QUEUE.{orders.a}", {"m1": now - 5000, "m2": now - 4000, "m3": now + 600_000})
        client.zadd("app.QUEUE.{orders.b}", {"m4": now - 3000.5})
        client.zadd("app.UNACK.{orders.a}.0", {"m5": now + 60_000, "m6": now + 60_000})
        client.xgroup_create("events", "billing", id="0", mkstream=True)
        for number in range(5):
            client.xadd("events", {"number": number})
        client.xreadgroup("billing", "one", {"events": ">"}, count=2)
    return {
        "app.orders": {"depth": 3, "in_flight": 2, "delayed": 1},
        "events": {"depth": 3, "in_flight": 2, "delayed": 0},
    }
