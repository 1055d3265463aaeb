"""A real Redis server on the loopback, ended by its own process id."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import redis

from tests.support.ports import free_ports
from tests.support.process import Server, ServerProcess
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


class RedisSentinel(ServerProcess):
    """One ``redis-server --sentinel``; it decides alone who is the ``primary``, which ``server`` is at first."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        super().__init__(folder)
        self._server = server
        (self.port,) = free_ports(1)

    def client(self) -> redis.Redis:
        """A client of the Sentinel itself; close it."""
        return redis.Redis(host="127.0.0.1", port=self.port, decode_responses=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\nsentinel monitor primary 127.0.0.1 {self._server.port} 1\n"
        )
        command = [str(program("redis-server")), str(config), "--sentinel", "--dir", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "the Sentinel to be ready", every=0.01)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the Sentinel ended:\n{self.log}"
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def fail_over(self) -> None:
        """Let it promote the replica, and wait until it names it as the primary."""
        with self.client() as client:
            wait_until(lambda: self._asked(client), "a replica that can be promoted")
            named = lambda: client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "primary")  # noqa: E731
            wait_until(lambda: int(named()[1]) != self._server.port, "the replica to be the primary", seconds=30)

    def _asked(self, client: redis.Redis) -> bool:
        try:
            return bool(client.execute_command("SENTINEL", "FAILOVER", "primary"))
        except redis.ResponseError as error:
            if "NOGOODSLAVE" in str(error):
                return False  # it has not met the replica yet
            raise


class RedisCluster(Server):
    """A cluster of three primaries without replicas."""

    def __init__(self, folder: Path) -> None:
        self.nodes = []
        for number, bus in enumerate(free_ports(3)):
            arguments = ["--cluster-enabled", "yes", "--cluster-port", str(bus)]
            arguments += ["--cluster-require-full-coverage", "no"]
            self.nodes.append(RedisServer(folder / str(number), *arguments))
        self._buses = [int(node._arguments[3]) for node in self.nodes]

    def start(self) -> None:
        """Start the nodes, part the slots among them, and wait until all know it."""
        for number, node in enumerate(self.nodes):
            node.start()
            with node.client() as client:
                first, last = 16384 * number // 3, 16384 * (number + 1) // 3 - 1
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        with self.nodes[0].client() as client:
            for node, bus in zip(self.nodes[1:], self._buses[1:], strict=True):
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until every node knows the holders of all slots."""
        wait_until(lambda: all(map(self._is_whole, self.nodes)), "the cluster to be whole")

    @staticmethod
    def _is_whole(node: RedisServer) -> bool:
        with node.client() as client:
            told = client.execute_command("CLUSTER", "INFO")
        return b"cluster_state:ok" in told and b"cluster_slots_ok:16384" in told

    def holder(self, slot: int) -> RedisServer:
        """The node that has ``slot`` at the start."""
        return self.nodes[next(number for number in range(3) if slot < 16384 * (number + 1) // 3)]

    def client(self) -> redis.RedisCluster:
        """A client of an application; close it."""
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port)

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()


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
