"""Who is limited for nothing, and what is not completed: all scenarios of the lab, the shipped policies beside nothing.

The goal is stated for a hundred seeds: ``--only innocents``, half an hour of one core. A line a scenario goes to
standard error as it ends, with the seeds whose runs limited an innocent or completed too little.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.figures import Figure
from lab.compare import LEAST_THROUGHPUT, Compared, compare, while_asked_for
from lab.run import Result, simulate, telling
from lab.scenario import Scenario, Variant, load, names
from lab.table import said

SEEDS = 100
#: The policies that ship; what is compared with them comes first.
WAYS = ("entitled", "controlled")


def measure(scale: float) -> Iterator[Figure]:
    """Tenants limited for nothing, the least of the scenarios' throughput, and what is worse than doing nothing."""
    yield from over_scenarios(max(2, int(SEEDS * scale)))


def over_scenarios(seeds: int) -> Iterator[Figure]:
    """The same over so many ``seeds`` of each scenario that compares policies."""
    innocents, worse, least = 0, 0, dict.fromkeys(WAYS, 1.0)
    print(
        f"{'scenario':16} {'way':11} {'seeds':>5} {'innocents':>9}  completed ÷ nothing; quiet p99 - nothing",
        file=sys.stderr,
    )
    for name in names():
        scenario = load(name)
        ways = [one for one in scenario.variants if one.name in WAYS]
        if len(ways) < len(WAYS):  # what compares capacities compares no policies
            continue
        told: dict[str, list[str]] = defaultdict(list)
        found = _compared(name, replace(scenario, variants=(scenario.variants[0], *ways)), seeds, told)
        for one in found[1:]:
            why = one.worse(scenario.service_mean)
            print(_line(name, one, [*why, *told[one.variant]]), file=sys.stderr, flush=True)
            least[one.variant] = min(least[one.variant], one.throughput.mean)
            innocents, worse = innocents + one.innocents, worse + bool(why)
    over = f"over {seeds} seeds of each scenario"
    yield Figure("innocents_limited", float(innocents), f"tenants, {over}")
    yield Figure("worse_than_nothing", float(worse), f"policies × scenarios, {over}")
    for way, ratio in least.items():
        yield Figure(f"throughput_ratio_min_lab_{way}", ratio, "ratio", 1.0)


def _compared(name: str, scenario: Scenario, seeds: int, told: dict[str, list[str]]) -> list[Compared]:
    """Each way of ``scenario``; by way, ``told`` are the seeds to look at."""
    nothing: dict[int, Result] = {}

    def run(scenario: Scenario, seed: int, variant: Variant) -> Result:
        found = simulate(scenario, seed, variant)
        of_nothing = while_asked_for(found, nothing.setdefault(seed, found))  # the first way does nothing
        if found.innocents or of_nothing < LEAST_THROUGHPUT:
            told[variant.name].append(f"seed {seed}: {found.innocents} innocents, {of_nothing:.3f} completed")
        return found

    return compare(
        scenario, range(seeds), telling(run, seeds * len(scenario.variants), lambda *run: _progress(name, *run))
    )


def _progress(name: str, ended: int, runs: int, way: str) -> None:
    """At a terminal, one line that is written anew for each run, and goes with the last."""
    if sys.stderr.isatty():
        told = f"{name}: {ended} of {runs} runs, {way}" if ended < runs else ""
        print(f"\r\x1b[K{told}", end="", file=sys.stderr, flush=True)


def _line(name: str, one: Compared, remarks: list[str]) -> str:
    figures = f"{said(one.throughput)}; {said(one.quiet_change)}"
    return f"{name:16} {one.variant:11} {one.seeds:5} {one.innocents:9}  {'; '.join([figures, *remarks])}"
