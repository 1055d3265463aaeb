"""A real NATS server with JetStream on the loopback, ended by its own process id."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.process import ServerProcess
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
