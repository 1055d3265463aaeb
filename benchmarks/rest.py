"""At rest: what Sojourn costs while little happens: 100 messages a second tapped and sampled, nobody looking.

``sojourn up`` runs without its dashboard over the demo's broker, whose consumers and producers are the demo's own, all
calm. A minute is measured after a minute of warming up: processor seconds a second of each of Sojourn's processes,
their sum ``idle_cores``, and how old the newest event in gold and in finished state was meanwhile. The yardstick is a
plain Python loop in the same run, because machines differ, and so does what else runs on them.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-rest`; ARGS="--threads"
tells the threads of each process as well, ARGS="--hold 300" keeps everything running afterwards, for a profiler.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, show
from benchmarks.processor import descendants, processor_seconds, thread_seconds, words, yardstick_seconds
from lake.definitions import Definitions
from lake.files import write_atomically
from lake.store import Lake
from sojourn.demo import cast, scenario
from sojourn.demo.broker import Broker, provision
from sojourn.demo.freshness import Freshness, newest_version
from sojourn.demo.layout import Layout
from sojourn.demo.measure import quantile
from sojourn.demo.scenario import TARGET_SECONDS
from sojourn.demo.settings_file import WINDOW_SECONDS, settings_text
from sojourn.parts import module, own_environment
from sojourn.supervise.supervisor import TICK_SECONDS, Supervisor

RATE = 100.0
#: Metrics must have come by then, on the slowest of machines.
PATIENCE_SECONDS = 600.0
WATCHED = ("message_events", "queue_samples", "partials", "queue_state")


@dataclass(frozen=True)
class Reading:
    """Processor seconds so far, by part and by part and thread; commits so far, by table."""

    at: float
    parts: Mapping[str, float]
    threads: Mapping[str, float]
    commits: Mapping[str, int]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long is measured")
    parser.add_argument("--warm", type=float, default=60.0, help="how long everything has run before, with metrics")
    parser.add_argument("--rate", type=float, default=RATE, help="messages a second")
    parser.add_argument("--threads", action="store_true", help="tell the threads that cost most, too")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds to keep running behind what is measured")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended first
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        for figure in _measured(Path(folder), chosen):
            show(figure)


def _measured(folder: Path, chosen: argparse.Namespace) -> Iterator[Figure]:
    layout = Layout(folder / "lake")
    layout.prepare()
    Lake(layout.lake).create()
    with _load(layout, chosen.rate) as (supervisor, broker, ports):
        write_atomically(layout.settings, settings_text(layout, broker, ports))
        Definitions(window_seconds=WINDOW_SECONDS, target_seconds=TARGET_SECONDS).save(layout.lake)
        freshness = Freshness(Lake(layout.lake).path("partials"))
        finished = Freshness(Lake(layout.lake).path("queue_state"), "as_of")
        freshness.start()
        finished.start()
        started = time.monotonic()
        with _sojourn(layout) as process:
            _wait(supervisor, PATIENCE_SECONDS, lambda: freshness.first_metrics)
            yield Figure("first_metrics_seconds", time.monotonic() - started, "s")
            first = _reading(process.pid, layout.lake)
            yield Figure("first_metrics_processor_seconds", sum(first.parts.values()), "s")
            _wait(supervisor, chosen.warm, lambda: False)
            yardstick = yardstick_seconds()
            yield Figure("yardstick_seconds", yardstick, "s of processor for 10^7 additions in Python")
            before, began = _reading(process.pid, layout.lake), time.time()
            _wait(supervisor, chosen.seconds, lambda: False)
            after = _reading(process.pid, layout.lake)
            yield from _figures(before, after)
            for name, sampled in (("rest_freshness", freshness), ("rest_freshness_finished", finished)):
                lags = sampled.between(began, began + chosen.seconds)
                yield Figure(f"{name}_p50_seconds", quantile(lags, 0.5) or 0.0, "s")
                yield Figure(f"{name}_p95_seconds", quantile(lags, 0.95) or 0.0, "s")
            if chosen.threads:
                yield from _by_thread(before, after)
            if chosen.hold:
                for pid in descendants(process.pid):
                    print(pid, _part(words(pid)), file=sys.stderr, flush=True)
                _wait(supervisor, chosen.hold, lambda: False)
        freshness.stop()
        finished.stop()


def _figures(before: Reading, after: Reading) -> Iterator[Figure]:
    seconds = after.at - before.at
    cores = {name: (after.parts[name] - before.parts.get(name, 0.0)) / seconds for name in after.parts}
    yield Figure("idle_cores", sum(cores.values()), "s of processor a second")
    for name in sorted(cores):
        yield Figure(f"idle_cores_{name}", cores[name], "s of processor a second")
    for name in WATCHED:
        yield Figure(f"rest_{name}_commits", (after.commits[name] - before.commits[name]) / seconds, "commits/s")


def _by_thread(before: Reading, after: Reading, least: float = 0.002) -> Iterator[Figure]:
    seconds = after.at - before.at
    cores = {name: (spent - before.threads.get(name, 0.0)) / seconds for name, spent in after.threads.items()}
    for name, cost in sorted(cores.items(), key=lambda one: -one[1]):
        if cost >= least:
            yield Figure(f"thread {name}", cost, "s of processor a second")


def _reading(root: int, lake: Path) -> Reading:
    parts: dict[str, float] = {}
    threads: dict[str, float] = {}
    for pid in descendants(root):
        name = _part(words(pid))
        parts[name] = parts.get(name, 0.0) + processor_seconds(pid)
        for thread, seconds in thread_seconds(pid).items():
            threads[f"{name}/{thread}"] = threads.get(f"{name}/{thread}", 0.0) + seconds
    commits = {name: newest_version(Lake(lake).path(name) / "_delta_log") for name in WATCHED}
    return Reading(time.monotonic(), parts, threads, commits)


def _part(command: list[str]) -> str:
    """What a process of Sojourn's is for, by its command line."""
    if command and Path(command[0]).name == "java":
        return "analyze_java"
    if "lake.worker" in command:
        return "worker"
    return command[3] if command[1:3] == ["-m", "sojourn.cli.main"] else "others"


@contextmanager
def _load(layout: Layout, rate: float) -> Iterator[tuple[Supervisor, Broker, cast.Ports]]:
    """The broker, and applications that send and work, none of them Sojourn's, as in the demo's calm phase."""
    broker, ports = Broker.below(layout.broker), cast.Ports.free()
    supervisor = Supervisor(layout.logs, layout.state / "processes.json")
    tenants = [f"tenant-{number}" for number in range(round(rate / scenario.CALM_RATE))]
    limits = f"http://127.0.0.1:{ports.alert}"
    produce = module("sojourn.demo.producers", broker.url, limits, str(layout.lake), "0", "1e9", *tenants)
    try:
        supervisor.start(broker.child())
        supervisor.wait_ready()
        asyncio.run(provision(broker.url))
        supervisor.start(cast.receiver(layout, ports))
        for child in cast.consumers(broker):
            supervisor.start(child)
        supervisor.start(cast.Child("producer", produce, own_environment()))
        supervisor.wait_ready()
        yield supervisor, broker, ports
    finally:
        supervisor.stop()


@contextmanager
def _sojourn(layout: Layout) -> Iterator[subprocess.Popen[bytes]]:
    command = module("sojourn.cli.main", "up", "--config", str(layout.settings), "--lake", str(layout.lake))
    environment = os.environ | own_environment()
    with (layout.lake / "up.log").open("wb") as log:
        process = subprocess.Popen([*command, "--without", "dashboard"], env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _wait(supervisor: Supervisor, seconds: float, done: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not done():
        supervisor.tick()
        time.sleep(TICK_SECONDS)


if __name__ == "__main__":
    main()
