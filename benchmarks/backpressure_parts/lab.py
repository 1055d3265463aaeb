"""The lab itself: how fast it simulates; over its scenarios, who is limited for nothing and what is not completed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.figures import Figure
from lab.compare import compare
from lab.run import simulate
from lab.scenario import Variant, load, names

#: Seeds of each scenario; the goal is stated for a hundred: ``--scale 5``, most of an hour.
SEEDS = 20


def measure(scale: float) -> Iterator[Figure]:
    """Messages in a second of processor time; the worst scenario's throughput, ÷ doing nothing."""
    scenario = load("noisy-neighbour")
    simulate(scenario, 1, Variant("controlled", True, 12))  # loads the rule, and what control needs
    for name, variant in (("", Variant("free", False, 12)), ("_controlled", Variant("controlled", True, 12))):
        began = time.process_time()
        done = simulate(scenario, 0, variant).completed
        yield Figure(f"lab{name}_messages_per_second", done / (time.process_time() - began), "messages/s")
    seeds, innocents, least = max(2, int(SEEDS * scale)), 0, {"controlled": 1.0, "entitled": 1.0}
    for name in names():
        scenario = load(name)
        ways = [one for one in scenario.variants if one.name in least]
        if len(ways) < len(least):  # what compares capacities compares no policies
            continue
        found = compare(replace(scenario, variants=(scenario.variants[0], *ways)), range(seeds))
        for one in found[1:]:
            least[one.variant] = min(least[one.variant], one.throughput.mean)
        innocents += sum(one.innocents for one in found)
    yield Figure("innocents_limited", float(innocents), f"tenants, over {seeds} seeds of each scenario")
    for name, ratio in least.items():
        yield Figure(f"throughput_ratio_min_lab_{name}", ratio, "ratio", 1.0)
