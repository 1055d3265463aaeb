"""Ten thousand alerts in as many groups fire at once: all delivered, beside a dead receiver; then a restart."""

from __future__ import annotations

import gc
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from alerts.evidence.exemplars import Exemplars
from alerts.evidence.facts import Facts
from alerts.evidence.pages import Pages
from alerts.notify.sender import Sender
from alerts.rules.model import Rule
from alerts.run import COLLECT_AFTER
from alerts.settings import AlertSettings
from benchmarks.alerts_parts.engine import VIEW, engine, receiver, view
from benchmarks.figures import Figure
from lake.clock import Clock
from lake.store import Lake

GROUPS = 10_000
PATIENCE_SECONDS = 600.0
RULE = Rule("bench", "Deep", f"SELECT broker, queue, depth AS value FROM {VIEW} WHERE depth > 0", tables={VIEW})


def measure(scale: float) -> Iterator[Figure]:
    """Seconds from the round that fires to the last delivery, and until a new process's engine has gone round."""
    count = int(GROUPS * scale)
    gc.set_threshold(*COLLECT_AFTER)
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        spent = time.process_time()
        alone = _delivered(Path(folder) / "alone", count, dead=False)
        spent = time.process_time() - spent
        yield Figure("deliver_10k_groups_seconds", alone, "s")
        yield Figure("deliver_groups_per_second", count / alone, "groups/s")
        yield Figure("deliver_10k_groups_processor_seconds", spent, "s of processor, without the receiver")
        beside = _delivered(Path(folder) / "beside", count, dead=True)
        yield Figure("deliver_10k_groups_beside_a_dead_receiver_seconds", beside, "s", alone)
        wall, processor = _restarted(Path(folder) / "alone", count)
        yield Figure("restart_10k_firing_seconds", wall, "s")
        yield Figure("restart_10k_firing_processor_seconds", processor, "s of processor")


def _settings(ports: dict[str, int]) -> AlertSettings:
    receivers: list[dict[str, Any]] = [
        {"name": name, "url": f"http://127.0.0.1:{port}/", "allow_private": True} for name, port in ports.items()
    ]
    return AlertSettings.model_validate({"builtin": False, "receivers": receivers})


def _delivered(folder: Path, count: int, *, dead: bool) -> float:
    Lake(folder / "lake").create()
    clock, table = Clock(), view(count, [1] * count)
    with receiver() as port, receiver("dead") as silent:
        settings = _settings({"healthy": port, **({"dead": silent} if dead else {})})
        exemplars = Exemplars(folder / "lake")
        facts = Facts({VIEW: table}.get, lambda: (), lambda: False, lambda: 60)
        pages = Pages(lambda: one.snapshot, facts, exemplars)
        sender = Sender(folder / "alerts.sqlite", settings.receivers, clock, pages.refreshed)
        held = [view(count, [0] * count)]
        one = engine(folder / "alerts.sqlite", [RULE], settings, lambda _: held[0], clock, sender.wake)
        sender.start()
        one.round(clock.now(), new_data=True, everything=True)
        held[0] = table
        began = time.time()
        one.round(clock.now(), new_data=True, everything=True)
        told: dict[str, Any] = {"count": 0}
        while told["count"] < count:
            if time.time() - began > PATIENCE_SECONDS:
                raise SystemExit(f"only {told['count']} of {count} notifications arrived")
            time.sleep(0.2)
            told = httpx.get(f"http://127.0.0.1:{port}/").json()
        if not dead:
            while _waiting(folder / "alerts.sqlite"):
                time.sleep(0.1)
        one.close(clock.now())
        sender.stop()
        exemplars.close()
    return float(told["last"] - began)


def _waiting(store: Path) -> int:
    database = sqlite3.connect(store)
    try:
        return int(database.execute("SELECT COUNT(*) FROM outbox").fetchone()[0])
    finally:
        database.close()


def _restarted(folder: Path, count: int) -> tuple[float, float]:
    """From opening the store until the first round is over: all fire on, and nobody is told again."""
    clock, table, woken = Clock(), view(count, [1] * count), []
    began, spent = time.monotonic(), time.process_time()
    one = engine(
        folder / "alerts.sqlite", [RULE], _settings({"healthy": 9}), lambda _: table, clock, lambda: woken.append(1)
    )
    one.round(clock.now(), new_data=True, everything=True)
    taken = time.monotonic() - began, time.process_time() - spent
    if woken or len(one.snapshot.firing()) != count:
        raise SystemExit("after a restart not all fired on, or somebody was told again")
    one.close(clock.now())
    return taken
