"""What runs of the lab came to when this was written, to the last digit: faster must not mean otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.order import ORDERS
from lab.run import simulate
from lab.scenario import Variant, load

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
FIGURES = ("quiet_p50", "quiet_p99", "quiet_total_p99", "suspect_p99", "suspect_total_p99", "fairness")
COUNTS = ("completed", "shed", "done", "innocents", "limited")
#: Exponential, failing and costly work; work that slows down; servers that come; outages.
SCENARIOS = ("noisy-neighbour", "outage-large", "poison", "retry-storm", "scale-out", "slow-dependency", "slow-tenant")
WAYS = [Variant(order, False, 12, order=order) for order in ORDERS]
WAYS += [Variant("entitled", False, 12, entitled=True), Variant("controlled", True, 12)]


def figures(name: str, way: Variant) -> list[float | None]:
    """The first two minutes, seed 1; None for what is not a number."""
    scenario = load(name)
    found = simulate(replace(scenario, duration=min(120.0, scenario.duration)), 1, way)
    values = [getattr(found, figure) for figure in FIGURES]
    return [round(value, 9) if value == value else None for value in values] + [getattr(found, one) for one in COUNTS]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_comes_to_what_it_came_to(name: str) -> None:
    assert {way.name: figures(name, way) for way in WAYS} == GOLDEN[name]


if __name__ == "__main__":
    print(json.dumps({name: {way.name: figures(name, way) for way in WAYS} for name in SCENARIOS}, indent=1))
