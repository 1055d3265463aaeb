"""Sojourn itself over a broker, as ``sojourn up`` runs it: tap, analysis, alerts, limits API. For `make bench-…`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sojourn
from benchmarks.backpressure_parts.load import STREAM
from lake.store import Lake
from sojourn.demo.freshness import Freshness
from sojourn.demo.scenario import TARGET_SECONDS
from sojourn.demo.settings_file import WINDOW_SECONDS
from sojourn.parts import module, own_environment
from sojourn.supervise.probes import free_port, http_ok

PATIENCE_SECONDS = 300.0
_SETTINGS = f"""\
[definitions]
window_seconds = {WINDOW_SECONDS}
target_seconds = {TARGET_SECONDS}

[[collect.brokers]]
name = "nats"
kind = "nats"
url = "{{url}}"
streams = [{{{{ name = "{STREAM}", tenant = "key:*.{{{{tenant}}}}" }}}}]

[alert]
port = {{port}}

{{control}}
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A broker that is watched; ``url`` is the limits API's."""

    url: str
    lake: Path

    def limits(self) -> sojourn.Limits:
        """What producers obey."""
        return sojourn.Limits(self.url, broker="nats", queues=[STREAM])


@contextmanager
def watched(broker: str, folder: Path, control: str) -> Iterator[Watched]:
    """Watch the broker at that URL under the ``control`` settings; yields once the parts run."""
    port, lake, config = free_port(), folder / "lake", folder / "sojourn.toml"
    config.write_text(
        _SETTINGS.format(url=broker, port=port, control=control.replace("{url}", broker)), encoding="utf-8"
    )
    Lake(lake).create()
    command = module("sojourn.cli.main", "up", "--config", str(config), "--lake", str(lake), "--without", "dashboard")
    with ExitStack() as stack, (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | own_environment(), stdout=log, stderr=log)
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        healthy = http_ok(f"http://127.0.0.1:{port}/v1/limits")
        until(lambda: process.poll() is None and healthy(), folder / "up.log")
        yield Watched(f"http://127.0.0.1:{port}", lake)


@contextmanager
def freshness(lake: Path) -> Iterator[Freshness]:
    """How far metrics lag behind, sampled meanwhile."""
    found = Freshness(Lake(lake).path("partials"))
    found.start()
    try:
        yield found
    finally:
        found.stop()


def until(condition: Callable[[], object], log: Path) -> None:
    """Wait for ``condition``."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"it did not come:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
