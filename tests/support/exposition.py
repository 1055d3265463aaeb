"""A page of metrics at an address of its own: what a broker's endpoint, or an exporter, would answer."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import wait_until

RECORDED = Path(__file__).parents[1] / "collectors" / "prometheus" / "recorded"


class Exposition(ServerProcess):
    """Serves the folder of ``page``."""

    def __init__(self, folder: Path, page: Path) -> None:
        super().__init__(folder)
        self._page = page
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/{self._page.name}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "http.server", str(self.port), "--bind", "127.0.0.1"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, cwd=self._page.parent, **quiet)
        wait_until(self._ready, "the page to be served")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
