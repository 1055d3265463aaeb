"""What a signal does to what waits: an event is set, and every process that runs until it is told to ends in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from actuators import reaper
from lake.stopping import stopping
from lake.store import Lake
from tests.support.deep import combinations
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE, wait_until


def test_a_signal_that_comes_while_the_wait_holds_its_lock_is_heard() -> None:
    with stopping() as stop:
        with stop._cond:  # as on the way into a wait, and out of one
            signal.raise_signal(signal.SIGTERM)
        assert stop.wait(60)


def test_a_second_signal_interrupts_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert stop.wait(60)
    assert signal.getsignal(signal.SIGTERM) is before


#: The words behind ``python -m``, and what is true once it runs.
Running = tuple[list[str], Callable[[], bool]]


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _command(folder: Path, name: str, settings: str) -> Running:
    (port,) = free_ports(1)
    (folder / "sojourn.toml").write_text(settings.format(port=port))
    words = ["sojourn.cli.main", name, "-c", str(folder / "sojourn.toml"), "--lake", str(folder / "lake")]
    return words, lambda: _listens(port)


def _collect(folder: Path) -> Running:
    return _command(folder, "collect", "[collect.receive]\nenabled = true\nhttp_port = {port}\n")


def _alert(folder: Path) -> Running:
    Lake(folder / "lake").create()
    return _command(folder, "alert", "[alert]\nport = {port}\n")


def _reaper(folder: Path) -> Running:
    lock = folder / reaper.LOCK
    return ["actuators.reaper", str(folder), str(os.getpid())], lambda: lock.exists() and lock.read_text() != ""


def _receiver(folder: Path) -> Running:
    (port,) = free_ports(1)
    (folder / "secret").write_text("whsec_c29qb3Vybg==")
    words = ["sojourn.demo.receiver", str(port), str(folder / "secret"), str(folder / "webhooks.jsonl")]
    return words, lambda: _listens(port)


@pytest.mark.parametrize(
    ("started", "number"),
    combinations([_collect, _alert, _reaper, _receiver], [signal.SIGTERM, signal.SIGINT]),
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_runs_until_it_is_told_to_stop_ends_in_order_with_all_that_it_started(
    tmp_path: Path, started: Callable[[Path], Running], number: signal.Signals
) -> None:
    """Beside the dashboard, ``mcp``, ``top``, ``connect``, ``up`` and the demo, whose own tests have it."""
    words, ready = started(tmp_path)
    said = tmp_path / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        wait_until(ready, "it to run")
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(20 * PATIENCE) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(one.is_running() for one in family), "what it started to end")
    assert "Traceback" not in said.read_text()
