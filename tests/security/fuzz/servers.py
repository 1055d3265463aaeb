"""The processes that the fuzzer knocks at, over one new lake: a receiver, an alert process and a dashboard, as users
run them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from lake.store import Lake
from tests.security.fuzz.requests import TOKEN
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

PARTS = ("collect", "alert", "dashboard")
ROOT = Path(__file__).parents[3]
_SETTINGS = """
[collect]
flush_interval = 0.05

[collect.receive]
enabled = true
http_port = {http}
grpc_port = {grpc}
token = {{ env = "FUZZ_TOKEN" }}
horizon_events = 20000
remembered = 2000
max_request_bytes = 1000000
max_pending_bytes = 16000000

[alert]
port = 0
token_env = "FUZZ_TOKEN"

[dashboard]
port = {dashboard}
"""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where they listen, and their processes."""

    lake: Path
    http: int
    grpc: int
    api: int
    dashboard: int
    receiver: psutil.Process
    alerts: psutil.Process
    pages: psutil.Process

    @property
    def processes(self) -> dict[str, psutil.Process]:
        """All of them, by name."""
        return {"the receiver": self.receiver, "the alert process": self.alerts, "the dashboard": self.pages}

    def fallen(self) -> list[str]:
        """Those that have ended, by name."""
        return [
            name for name, one in self.processes.items() if not one.is_running() or one.status() == psutil.STATUS_ZOMBIE
        ]


@contextmanager
def serving(folder: Path) -> Iterator[Servers]:
    """The processes, over the lake at ``folder``/lake; their output is in ``folder``/NAME.log."""
    http, grpc, dashboard = free_ports(3)
    lake, config = folder / "lake", folder / "sojourn.toml"
    config.write_text(_SETTINGS.format(http=http, grpc=grpc, dashboard=dashboard))
    Lake(lake).create()
    started = []
    try:
        started = [_started(part, config, folder) for part in PARTS]
        told = lake / "state" / "run" / "alerts.json"

        def ready() -> bool:
            if any(one.poll() is not None for one in started):
                raise AssertionError(" | ".join(log.read_text()[-1000:] for log in folder.glob("*.log")))
            return all(map(_listens, (http, grpc, dashboard))) and told.exists()

        wait_until(ready, "all to listen", seconds=60)
        api = int(json.loads(told.read_text())["url"].rpartition(":")[2])
        wait_until(lambda: _listens(api), "the API to listen", seconds=60)
        yield Servers(lake, http, grpc, api, dashboard, *(psutil.Process(one.pid) for one in started))
    finally:
        for one in started:
            one.terminate()
        for one in started:
            with suppress(subprocess.TimeoutExpired):
                one.wait(30)
            one.kill()
            one.wait()


def _started(part: str, config: Path, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{part}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sojourn.cli.main", part, "-c", str(config), "--lake", str(folder / "lake")],
            env={**os.environ, "FUZZ_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
