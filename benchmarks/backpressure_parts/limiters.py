"""Our concurrency laws beside those of others on one open-loop load: p99, goodput and drift over an hour, simulated.

Prints a table of all of it on standard error; what was not to be had is left out, and named there. Envoy, which runs
in real time alone, is a part of its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.figures import Figure
from benchmarks.limiters import ours, theirs
from benchmarks.limiters.world import Array, Shown, run, shown, trace
from lake.errors import SojournError

SECONDS = 3600.0
HEAD = f"{'':20} {'p99':>7} {'late':>7} {'goodput':>8} {'calm':>7} {'limit':>8} {'drift':>7}"


def ways(folder: Path) -> dict[str, Callable[[Array], Array]]:
    """Name → what makes the outcome of a trace."""
    return {
        "nothing": lambda requests: run(requests, ours.Nothing()),
        "gradient_guarded": lambda requests: run(requests, ours.Gradient()),
        "gradient_unguarded": lambda requests: run(requests, ours.Gradient(guarded=False)),
        "little": lambda requests: run(requests, ours.Little()),
        "aimd_rate": lambda requests: run(requests, ours.Aimd()),
        "netflix_gradient2": lambda requests: theirs.netflix("gradient2", requests, folder),
        "netflix_vegas": lambda requests: theirs.netflix("vegas", requests, folder),
        "netflix_aimd": lambda requests: theirs.netflix("aimd", requests, folder),
        "failsafe_go": lambda requests: theirs.failsafe(requests, folder),
    }


def measure(scale: float) -> Iterator[Figure]:
    """Of each limiter: p99 (seconds) and goodput (÷ capacity) in the overload, and its limit's drift."""
    seconds = SECONDS * scale
    requests = trace(seconds)
    print(HEAD, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways(Path(folder)).items():
            try:
                found = shown(requests, way(requests), seconds)
            except (OSError, SojournError, pytest.skip.Exception) as error:
                print(f"{name:20} not to be had here: {error}", file=sys.stderr)
                continue
            print(line(name, found), file=sys.stderr)
            yield Figure(f"limiter_{name}_p99_seconds", found.p99, "s")
            yield Figure(f"limiter_{name}_goodput_ratio", found.goodput, "ratio", 1.0)
            yield Figure(f"limiter_{name}_drift_ratio", found.drift, "ratio", 1.0)


def line(name: str, one: Shown) -> str:
    """One limiter's row under :data:`HEAD`."""
    return (
        f"{name:20} {one.p99:7.3f} {one.p99_late:7.3f} {one.goodput:8.3f} {one.calm:7.3f} {one.limit:8.1f} "
        f"{one.drift:7.2f}"
    )
