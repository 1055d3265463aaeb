"""The lab against what queueing theory and published figures say, and the policies in it."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.control.settings import PolicySettings
from lab.queue import Queue
from lab.run import main, run, simulate
from lab.scenario import VARIANTS, Phase, Scenario, Tenant, Variant, load, names, parse
from lab.stats import estimate, jain, quantile
from lake.errors import UserError

FREE, CONTROLLED = Variant("free", False, 12), Variant("controlled", True, 12)


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "title": "one queue",
        "duration_seconds": 2000,
        "servers": 1,
        "service": {"distribution": "exponential", "mean_seconds": 0.5},
        "tenants": [{"name": "a", "phases": [{"at": 0, "rate": 1}]}],
    }
    return base | changes


@pytest.fixture(scope="module")
def noisy() -> Scenario:
    """The noisy neighbour, cut short: a minute of it."""
    scenario = load("noisy-neighbour")
    tenants = tuple(
        replace(tenant, phases=(Phase(0, 10), Phase(30, 120), Phase(90, 10))) if tenant.suspect else tenant
        for tenant in scenario.tenants
    )
    return replace(scenario, duration=150, measure=(30.0, 90.0), tenants=tenants)


def test_one_server_waits_as_the_formula_says() -> None:
    # M/M/1 at ρ = 0.5: the mean wait is ρ ÷ (μ − λ) = 0.5 s.
    scenario = parse(document())
    waits = []
    for seed in range(5):
        queue = Queue(scenario, 1, seed)
        queue.run()
        waits.append(statistics.fmean(attempt.age for attempt in queue.first_attempts))
    assert statistics.fmean(waits) == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("service", ["exponential", "constant", "lognormal"])
def test_service_times_have_the_mean_they_should(service: str) -> None:
    scenario = parse(document(service={"distribution": service, "mean_seconds": 0.02}))
    queue = Queue(scenario, 1, 1)
    assert statistics.fmean(queue._draw_service(0.02) for _ in range(20_000)) == pytest.approx(0.02, rel=0.05)


def test_an_arrival_phase_ends_when_it_should() -> None:
    phases = [{"at": 0, "rate": 5}, {"at": 100, "rate": 0}, {"at": 200, "rate": 50}]
    queue = Queue(parse(document(duration_seconds=300, tenants=[{"name": "a", "phases": phases}])), 100, 3)
    queue.run()
    arrivals = queue.accounts["a"].arrivals
    assert sum(n for second, n in arrivals.items() if second < 100) == pytest.approx(500, rel=0.2)
    assert not any(100 <= second < 200 for second in arrivals)
    assert sum(n for second, n in arrivals.items() if second >= 200) == pytest.approx(5000, rel=0.1)


def test_a_limited_producer_sends_no_more_than_its_rate_and_loses_nothing() -> None:
    tenants = [{"name": "a", "phases": [{"at": 0, "rate": 50}, {"at": 100, "rate": 0}]}]
    queue = Queue(parse(document(duration_seconds=1000, tenants=tenants)), 1000, 0)
    queue.limit("a", 10, valid_until=math.inf)
    queue.run()
    account = queue.accounts["a"]
    assert max(account.arrivals.values()) <= 20  # burst and rate in the first second
    assert sum(n for second, n in account.arrivals.items() if 10 <= second < 60) == pytest.approx(500, abs=11)
    assert account.completed == account.offered and not account.held


def test_a_lease_that_nobody_renews_ends_in_pass_through() -> None:
    tenants = [{"name": "a", "phases": [{"at": 0, "rate": 50}]}]
    queue = Queue(parse(document(duration_seconds=60, tenants=tenants)), 1000, 0)
    queue.limit("a", 1, valid_until=20)
    queue.run()
    arrivals = queue.accounts["a"].arrivals
    assert sum(n for second, n in arrivals.items() if second < 20) <= 22
    assert arrivals[20] > 500  # all that was held
    assert sum(n for second, n in arrivals.items() if second > 20) == pytest.approx(39 * 50, rel=0.1)


def test_a_seed_repeats_a_run_exactly(noisy: Scenario) -> None:
    assert simulate(noisy, 7, CONTROLLED) == simulate(noisy, 7, CONTROLLED)


def test_the_policy_brings_quiet_tenants_back_and_touches_the_noisy_one_alone(noisy: Scenario) -> None:
    free, controlled = simulate(noisy, 1, FREE), simulate(noisy, 1, CONTROLLED)
    assert controlled.quiet_p99 < 0.6 * free.quiet_p99
    assert controlled.quiet_p50 < 0.4 * free.quiet_p50
    assert free.recovered == math.inf and controlled.recovered < 60
    assert not free.decisions
    assert {one.tenant for one in controlled.decisions} == {"noisy"}
    kinds = [one.decision for one in controlled.decisions]
    assert kinds[0] == "throttle" and "relax" in kinds
    assert controlled.decisions[0].after == pytest.approx(60, rel=0.2)  # one step from 120/s


HARMLESS = {
    "nobody is late at 95 % of the capacity": document(
        duration_seconds=200,
        servers=12,
        service={"distribution": "exponential", "mean_seconds": 0.1},
        tenants=[
            {"name": "quiet", "count": 8, "phases": [{"at": 0, "rate": 9}]},
            {"name": "big", "suspect": True, "phases": [{"at": 0, "rate": 42}]},
        ],
    ),
    "the consumers were down": document(
        duration_seconds=300,
        servers=12,
        service={"distribution": "exponential", "mean_seconds": 0.1},
        outage=[60, 90],
        tenants=[
            {"name": "quiet", "count": 2, "phases": [{"at": 0, "rate": 10}]},
            {"name": "big", "suspect": True, "phases": [{"at": 0, "rate": 80}]},
        ],
    ),
}


@pytest.mark.parametrize("situation", HARMLESS)
@pytest.mark.parametrize("target", [3.0, 30.0])
def test_a_large_tenant_that_harms_nobody_is_never_limited(situation: str, target: float) -> None:
    scenario = parse(HARMLESS[situation])
    scenario = replace(scenario, target_seconds=target)
    for seed in range(2):
        free, controlled = simulate(scenario, seed, FREE), simulate(scenario, seed, CONTROLLED)
        assert not [one for one in controlled.decisions if one.decision == "throttle"]
        assert controlled.completed == free.completed


def test_a_limit_leaves_no_server_idle_for_long(noisy: Scenario) -> None:
    """Sixty small tenants and one at 200/s: what the small leave is the large one's, not a sixtieth of the whole."""
    tenants = (
        *(Tenant(f"small-{number}", (Phase(0, 1),)) for number in range(60)),
        Tenant("large", (Phase(0, 1), Phase(30, 200), Phase(90, 1)), suspect=True),
    )
    shipped = PolicySettings(name="shipped")
    crowd = replace(noisy, duration=300, measure=(30.0, 90.0), tenants=tenants, policy=shipped)
    free, controlled = simulate(crowd, 0, FREE), simulate(crowd, 0, CONTROLLED)
    assert controlled.completed >= 0.97 * free.completed
    assert controlled.quiet_p99 < 0.5 * free.quiet_p99


def test_the_policy_of_a_scenario_is_the_shipped_one_unless_it_says_otherwise() -> None:
    assert parse(document()).policy == PolicySettings(name="shipped")
    assert parse(document(policy={"target_seconds": 2})).target == 2 != parse(document()).target


def test_without_trouble_the_policy_does_nothing(noisy: Scenario) -> None:
    tenants = tuple(replace(tenant, phases=(Phase(0, 10),)) for tenant in noisy.tenants)
    assert simulate(replace(noisy, tenants=tenants), 1, CONTROLLED).decisions == ()


def test_a_tenant_that_heeds_no_one_is_dropped_where_the_producer_sheds(noisy: Scenario) -> None:
    shed = simulate(replace(noisy, producer="shed"), 1, CONTROLLED)
    assert shed.shed > 1000
    assert shed.suspect_total_p99 == shed.suspect_p99


def test_an_outage_drains_in_its_own_time_with_twice_the_capacity() -> None:
    scenario = replace(load("outage"), duration=1500.0, measure=(0, 1500), outage=(200.0, 600.0))
    drained = {
        v.servers: statistics.fmean(simulate(scenario, s, v).drained for s in range(3)) for v in scenario.variants
    }
    # λ T ÷ (c − λ) with λ = 2/s and T = 400 s
    assert drained == {3: pytest.approx(800, rel=0.3), 4: pytest.approx(400, rel=0.3), 6: pytest.approx(200, rel=0.3)}


def test_a_fair_order_serves_the_quiet_as_if_alone_and_takes_no_capacity(noisy: Scenario) -> None:
    fair = replace(FREE, name="fair", order="fair")
    alone = replace(noisy, tenants=tuple(tenant for tenant in noisy.tenants if not tenant.suspect))
    for seed in range(3):
        free, ordered = simulate(noisy, seed, FREE), simulate(noisy, seed, fair)
        assert ordered.quiet_p99 < 0.05 * free.quiet_p99
        assert ordered.quiet_p99 < simulate(alone, seed, FREE).quiet_p99 + 3 * noisy.service_mean
        assert ordered.completed == pytest.approx(free.completed, rel=0.01)


def test_standing_entitlements_protect_the_quiet_sooner_than_limits_and_take_no_capacity(noisy: Scenario) -> None:
    entitled = replace(FREE, name="entitled", entitled=True)
    for seed in range(3):
        free, held, limited = (simulate(noisy, seed, variant) for variant in (FREE, entitled, CONTROLLED))
        assert held.quiet_p99 < 0.1 * free.quiet_p99 and held.quiet_p99 < 0.5 * limited.quiet_p99
        assert held.late == 0
        assert held.completed >= 0.97 * free.completed


def test_entitlements_hold_back_whose_messages_are_costly() -> None:
    slow = load("slow-tenant")
    entitled = replace(FREE, name="entitled", entitled=True)
    free, held = simulate(slow, 0, FREE), simulate(slow, 0, entitled)
    assert held.quiet_p99 < 0.3 * free.quiet_p99
    assert held.done >= free.done


@pytest.mark.parametrize("big", [10, 42])
def test_nobody_who_does_what_he_always_did_is_held_back(noisy: Scenario, big: float) -> None:
    """95 % busy, and one tenant large: that is no offence."""
    small = (114 - big) / 7
    tenants = tuple(replace(tenant, phases=(Phase(0, big if tenant.suspect else small),)) for tenant in noisy.tenants)
    calm = replace(noisy, tenants=tenants, duration=200, measure=(60.0, 200.0))
    entitled = replace(FREE, name="entitled", entitled=True)
    free, held = simulate(calm, 1, FREE), simulate(calm, 1, entitled)
    assert held.suspect_total_p99 <= free.suspect_total_p99 + 0.2
    assert held.completed == pytest.approx(free.completed, rel=0.005)


def test_an_order_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="not one of arrival, fair"):
        parse(document(variants=[{"name": "x", "order": "lifo"}]))


def test_the_table_has_a_line_for_each_variant_with_intervals(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text(
        'title = "short"\nduration_seconds = 20\nservers = 2\n'
        'service = { distribution = "constant", mean_seconds = 0.1 }\n'
        'tenants = [{ name = "a", phases = [{ at = 0, rate = 5 }] }]\n'
    )
    table = main(str(path), seeds=2)
    assert "short" in table and "no control" in table and "controlled" in table and " to " in table
    assert [row.variant for row in run(path, [0])] == [variant["name"] for variant in VARIANTS]


def test_the_scenarios_that_come_with_the_lab_can_be_read() -> None:
    assert {"noisy-neighbour", "outage", "sybil", "lone-key"} <= {*names()}
    for name in names():
        assert load(name).title


@pytest.mark.parametrize(
    "changes",
    [
        {"servers": 0},
        {"servcie": 1},
        {"duration_seconds": -1},
        {"producer": "panic"},
        {"service": {"distribution": "zipf", "mean_seconds": 1}},
        {"policy": {"law": "aimdd"}},
        {"policy": {"law": "prefetch", "options": {"network_seconds": 0.1}}},
        {"policy": {"floor": 5, "ceiling": 1}},
        {"tenants": [{"name": "a", "phases": [{"at": 5, "rate": 1}, {"at": 1, "rate": 1}]}]},
        {"measure": 5},
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse(document(**changes))


@pytest.mark.parametrize(("text", "what"), [("x = ", "TOML"), ('title = "t"', "lacks")])
def test_a_file_that_is_no_scenario_is_a_clear_error(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=what):
        load(path)
    with pytest.raises(UserError, match="noisy-neighbour"):
        load("no-such-scenario")
    with pytest.raises(UserError, match="seed"):
        run("outage", [])


def test_intervals_cover_the_mean_as_often_as_they_promise() -> None:
    source = random.Random(1)
    covered = 0
    for _ in range(400):
        found = estimate([source.gauss(10, 3) for _ in range(10)])
        covered += found.low <= 10 <= found.high
    assert covered / 400 == pytest.approx(0.95, abs=0.03)


def test_jain_and_quantiles_are_what_their_authors_say() -> None:
    assert jain([5, 5, 5, 5]) == 1 and jain([1, 0, 0, 0]) == 0.25
    assert quantile([3, 1, 2, 4], 0.5) == 2 and quantile(range(1, 101), 0.99) == 99
    assert math.isnan(quantile([], 0.5))


def test_tenants_of_one_entry_are_numbered() -> None:
    scenario = parse(document(tenants=[{"name": "q", "count": 3, "phases": [{"at": 0, "rate": 1}]}]))
    assert scenario.tenants == tuple(Tenant(f"q-{i}", (Phase(0, 1),)) for i in range(3))
