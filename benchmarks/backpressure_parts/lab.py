"""The lab itself: how fast it simulates; over its scenarios, who is limited for nothing and what is not completed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.backpressure_parts.innocents import over_scenarios
from benchmarks.figures import Figure
from lab.run import simulate
from lab.scenario import Variant, load

#: Seeds of each scenario; the goal is stated for a hundred: ``--only innocents``.
SEEDS = 20


def measure(scale: float) -> Iterator[Figure]:
    """Messages in a second of processor time; the worst scenario's throughput, ÷ doing nothing."""
    scenario = load("noisy-neighbour")
    simulate(scenario, 1, Variant("controlled", True, 12))  # loads the rule, and what control needs
    for name, variant in (("", Variant("free", False, 12)), ("_controlled", Variant("controlled", True, 12))):
        began = time.process_time()
        done = simulate(scenario, 0, variant).completed
        yield Figure(f"lab{name}_messages_per_second", done / (time.process_time() - began), "messages/s")
    yield from over_scenarios(max(2, int(SEEDS * scale)))
