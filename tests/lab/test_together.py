"""One who floods under many names is named as a group and limited as one; who merely begins together is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.run import simulate
from lab.scenario import load
from tests.support.deep import examples


def test_forty_names_of_one_flooder_are_limited_as_one() -> None:
    scenario = load("sybil")
    nothing, policy = (
        next(way for way in scenario.variants if way.name == name) for name in ("no control", "controlled")
    )
    for seed in range(examples(2, 20)):
        free, held = (simulate(scenario, seed, way) for way in (nothing, policy))
        assert (held.limited, held.innocents) == (40, 0), held.decisions
        assert held.quiet_p99 < 0.5 * free.quiet_p99
        assert held.done >= 0.97 * free.done
        first = next(one for one in held.decisions if one.decision == "throttle")
        assert first.tenant.startswith("sybil-") and "began together" in first.tenant


@pytest.mark.parametrize("name", ["flash-crowd", "small-and-one", "noisy-neighbour"])
def test_where_nobody_is_of_a_group_to_look_for_them_changes_nothing(name: str) -> None:
    scenario = load(name)
    policy = next(way for way in scenario.variants if way.name == "controlled")
    for seed in range(examples(1, 10)):
        assert simulate(replace(scenario, together=True), seed, policy) == simulate(scenario, seed, policy)
