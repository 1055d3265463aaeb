"""Laws of their own in the lab: none is worse than doing nothing beyond its interval, or the reference page says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.control.settings import PolicySettings
from alerts.laws import registry
from lab.compare import compare
from lab.run import Result, simulate
from lab.scenario import Failing, Variant, load
from tests.support.deep import combinations

SCENARIOS = ("small-and-one", "innocent-large", "outage-large", "sybil", "poison")
PAGE = (Path(__file__).parents[2] / "docs" / "laws.md").read_text("utf-8")
#: Too few places for what comes in most scenarios.
OPTIONS: dict[str, dict[str, Any]] = {
    "permits": {"options": {"buffer": 300}},
    "squelch": {"max_step": 1.0, "options": {"places": 3000, "delay_seconds": 4}},
}


def policy(law: str, **changes: Any) -> PolicySettings:
    return PolicySettings(**{"name": "p", "law": law} | OPTIONS.get(law, {}) | changes)


@pytest.mark.parametrize(
    ("law", "name"), combinations(["client_throttle", "codel", "output_rate", "permits", "squelch"], SCENARIOS)
)
def test_no_law_is_worse_than_nothing_or_the_page_says_so(law: str, name: str) -> None:
    scenario = load(name)
    servers = scenario.variants[0].servers
    ways = (Variant("nothing", False, servers), Variant(law, True, servers, policy=policy(law)))
    found = compare(replace(scenario, variants=ways), range(2))[1]
    told = {*registry.law_class(law).worse.get(name, ())}
    assert told >= {*found.worse(scenario.service_mean)}, found
    assert all(f"`{name}`: {what}" in PAGE or f", {what}" in PAGE for what in told)


def ran(law: str, name: str, **changes: Any) -> tuple[Result, Result]:
    scenario = replace(load(name), **changes)
    servers = scenario.variants[0].servers
    ways = Variant("nothing", False, servers), Variant(law, True, servers, policy=policy(law))
    free, limited = (simulate(scenario, 1, way) for way in ways)
    return free, limited


def test_a_squelch_shortens_the_wait_where_places_are_few() -> None:
    free, limited = ran("squelch", "small-and-one")
    assert limited.quiet_total_p99 < 0.8 * free.quiet_total_p99
    assert limited.done >= free.done


def test_permits_keep_a_tenant_to_its_buffer_and_others_need_not_wait() -> None:
    free, limited = ran("permits", "small-and-one")
    assert limited.quiet_total_p99 < 0.7 * free.quiet_total_p99
    assert limited.done >= 0.97 * free.done


def test_a_slower_output_shortens_the_wait_of_others_while_attempts_fail_and_takes_no_capacity() -> None:
    free, limited = ran("output_rate", "small-and-one", failing=Failing(30, 90, 0.2))
    assert limited.quiet_total_p99 < 0.7 * free.quiet_total_p99
    assert limited.done >= free.done


def test_a_broker_without_a_probe_limits_nobody() -> None:
    free, limited = ran("publishing", "small-and-one")
    assert limited.limited == 0 and limited.done == free.done
    assert [one.decision for one in limited.decisions] == ["skip"]
