"""Envoy's adaptive concurrency, beside our gradient on the same load: in real time, six minutes; ``--only envoy``.

With ``--scale 10`` it is the hour that the part ``limiters`` simulates of the others.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.backpressure_parts.limiters import HEAD, line
from benchmarks.figures import Figure
from benchmarks.limiters import envoy, ours
from benchmarks.limiters.world import run, shown, trace

SECONDS = 360.0


def measure(scale: float) -> Iterator[Figure]:
    """The figures of the part ``limiters``; beside each our guarded gradient's on the same requests, simulated."""
    seconds = SECONDS * scale
    requests = trace(seconds)
    print(HEAD, file=sys.stderr)
    beside = shown(requests, run(requests, ours.Gradient()), seconds)
    print(line("gradient_guarded", beside), file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = shown(requests, envoy.outcome(requests, Path(folder)), seconds)
    print(line("envoy", found), file=sys.stderr)
    yield Figure("limiter_envoy_p99_seconds", found.p99, "s", beside.p99)
    yield Figure("limiter_envoy_goodput_ratio", found.goodput, "ratio", beside.goodput)
    yield Figure("limiter_envoy_drift_ratio", found.drift, "ratio", beside.drift)
