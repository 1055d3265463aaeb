"""The real Prometheus and its promtool."""

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


def promtool() -> Path:
    """The program; else the test ends: skipped on a person's machine, failed in CI."""
    return debian_program("prometheus", "promtool")


class PrometheusServer(ServerProcess):
    """One Prometheus with ``config``, which may be given as JSON: YAML has it in it."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        super().__init__(folder)
        self._config = config
        (self.port,) = free_ports(1)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(self._config))
        command = [
            str(debian_program("prometheus", "prometheus")),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-lifecycle",
            # An alert ends for its receiver four such delays after Prometheus said it last: four minutes by default.
            "--rules.alert.resend-delay=1s",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "Prometheus to be ready")

    def reload(self) -> None:
        """Have it read its rules again."""
        httpx.post(f"http://127.0.0.1:{self.port}/-/reload", timeout=60).raise_for_status()

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Prometheus ended:\n{self.log}"
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/-/ready").status_code == 200
        except httpx.TransportError:
            return False
