"""A real Alertmanager on the loopback, ended by its own process id."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx

from tests.support.debian import debian_program
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import wait_until


class AlertmanagerServer(ServerProcess):
    """One Alertmanager with ``config``, which may be given as JSON: YAML has it in it."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        super().__init__(folder)
        self._config = config
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "config.yml"
        config.write_text(json.dumps(self._config))
        command = [
            str(debian_program("prometheus-alertmanager", "prometheus-alertmanager", "alertmanager")),
            f"--config.file={config}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "Alertmanager to be ready")

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Alertmanager ended:\n{self.log}"
        try:
            return httpx.get(f"{self.url}/-/ready").status_code == 200
        except httpx.TransportError:
            return False
