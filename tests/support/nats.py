"""A real NATS server with JetStream on the loopback, ended by its own process id."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.process import Server, ServerProcess
from tests.support.servers import program
from tests.support.waiting import wait_until


class NatsServer(ServerProcess):
    """One ``nats-server``; its ports and stored streams outlast ``kill`` and ``start``."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder)
        self._arguments = arguments
        self.port, self.monitor_port = free_ports(2)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The HTTP monitoring endpoint, without a closing slash."""
        return f"http://127.0.0.1:{self.monitor_port}"

    def start(self) -> None:
        """Start the server and wait until JetStream answers."""
        assert self._process is None, "it runs already"
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [str(program("nats-server")), "-js", "-a", "127.0.0.1", "-p", str(self.port)]
        command += ["-m", str(self.monitor_port), "-sd", str(self._folder / "store"), *self._arguments]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "nats-server to be ready")

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"nats-server ended:\n{self.log}"
        try:
            with urllib.request.urlopen(f"{self.monitor_url}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class NatsCluster(Server):
    """Three servers that share the streams; where a stream is kept is chosen by a tag: ``at-0``, ``at-1``, ``at-2``."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(3)
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
        self.nodes = []
        for number, port in enumerate(ports):
            config = folder / str(number) / "config"
            config.parent.mkdir(parents=True)
            config.write_text(f'server_tags: ["at-{number}"]\n')
            arguments = ["-c", str(config), "--name", f"node-{number}", "--cluster_name", "three"]
            arguments += ["--cluster", f"nats://127.0.0.1:{port}", "--routes", routes]
            self.nodes.append(NatsServer(config.parent, *arguments))

    def start(self) -> None:
        """Start the nodes, all at once: one waits for the others."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(NatsServer.start, self.nodes))

    def led_by(self) -> int:
        """The number of the node that leads all of them: without one, no stream is told of until another is chosen."""
        with urllib.request.urlopen(f"{self.nodes[0].monitor_url}/jsz", timeout=5) as answer:
            return int(json.load(answer)["meta_cluster"]["leader"].removeprefix("node-"))

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()
