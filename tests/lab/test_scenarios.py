"""Each scenario over a few seeds: no policy does worse than nothing beyond its interval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alerts.control.depth import cadence
from lab.compare import LEAST_THROUGHPUT, compare, while_asked_for
from lab.document import page
from lab.order import ORDERS, of
from lab.queue import Queue
from lab.run import simulate
from lab.scenario import Phase, Tenant, Variant, load, names, parse
from tests.lab.test_lab import document
from tests.support.deep import examples

LONG = {"noisy-neighbour", "outage"}  # tried in test_lab


@pytest.mark.parametrize("name", sorted({*names()} - LONG))
def test_no_policy_is_worse_than_doing_nothing(name: str) -> None:
    scenario = load(name)
    ways = tuple(variant for variant in scenario.variants if variant.name in ("no control", "entitled", "controlled"))
    for one in compare(replace(scenario, variants=ways), range(examples(2, 5))):
        assert one.worse(scenario.service_mean) == [], one
        assert one.throughput.mean >= LEAST_THROUGHPUT, one


@pytest.mark.parametrize(
    "name",
    ["innocent-large", "lone-key", "outage-large", "scale-out", "small-and-one", "steady-95"][: examples(3, 6)],
)
def test_glances_make_no_entitlement_worse_than_doing_nothing(name: str) -> None:
    scenario = load(name)
    nothing = next(variant for variant in scenario.variants if variant.name == "no control")
    ways = (nothing, replace(nothing, name="glances", entitled=True, glances=True))
    for one in compare(replace(scenario, variants=ways), range(3)):
        assert one.worse(scenario.service_mean) == [], one


@pytest.mark.parametrize("glances", [False, True])
def test_an_outage_is_nobodys_noise_for_entitlements(glances: bool) -> None:
    scenario = load("outage-large")
    nothing = Variant("nothing", False, 12)
    for seed in range(2):
        free, held = (simulate(scenario, seed, replace(nothing, entitled=on, glances=glances)) for on in (False, True))
        assert held.quiet_total_p99 < free.quiet_total_p99 + 0.5, "nobody quiet waits for it"
        assert held.suspect_total_p99 < free.suspect_total_p99 + 0.5, "nor does who harmed nobody"
        assert held.done > 0.99 * free.done


def test_work_that_fails_is_nobodys_noise_for_entitlements() -> None:
    """Where four attempts of five fail, a fifth is finished of what consumers can: who sent more by chance was held."""
    scenario, nothing = load("retry-storm"), Variant("nothing", False, 12)
    for seed in (8, 9):
        free, held = (simulate(scenario, seed, replace(nothing, entitled=on)) for on in (False, True))
        assert held.quiet_total_p99 < free.quiet_total_p99 + scenario.service_mean


def test_servers_that_are_added_are_used_while_a_flood_is_held() -> None:
    scenario, nothing = load("scale-out"), Variant("nothing", False, 12)
    parts = []
    for seed in range(4):
        free, held = (simulate(scenario, seed, replace(nothing, entitled=on)) for on in (False, True))
        parts.append(while_asked_for(held, free))
        assert held.quiet_total_p99 < free.quiet_total_p99 - 1
    assert sum(parts) / len(parts) > 0.97, parts


def test_a_flood_is_not_let_go_because_the_quiet_were_held_with_it() -> None:
    """Its work ends late, so that too little is believed of consumers: all were held, and nobody was protected."""
    by_metrics = Variant("entitled", False, 12, entitled=True)
    for seed in (4, 7):
        assert simulate(load("slow-tenant"), seed, by_metrics).quiet_p99 < 5


def test_with_glances_the_quiet_wait_half_as_long_as_with_entitlements_by_metrics_alone() -> None:
    scenario = load("noisy-neighbour")
    by_metrics = Variant("entitled", False, 12, entitled=True)
    for seed in range(2):
        slow, fast = (simulate(scenario, seed, replace(by_metrics, glances=glances)) for glances in (False, True))
        assert fast.quiet_p99 < 0.65 * slow.quiet_p99 and fast.done > 0.97 * slow.done


@pytest.mark.parametrize(("lag", "begins"), [(1.0, 60.78), (2.0, 60.0), (2.0, 60.97)])
def test_a_flood_that_is_held_before_metrics_show_it_is_not_let_go(
    monkeypatch: pytest.MonkeyPatch, lag: float, begins: float
) -> None:
    """All that its producers held would come at once: the quiet waited two to four seconds."""
    monkeypatch.setattr(cadence, "CALM_SECONDS", 0.2)
    noisy = load("noisy-neighbour")
    quiet = [tenant for tenant in noisy.tenants if not tenant.suspect]
    flood = Tenant("noisy", (Phase(begins, 120),), suspect=True, innocent=False)
    scenario = replace(noisy, tenants=(*quiet, flood), lag_seconds=lag, duration=80.0, measure=(60.0, 75.0))
    for seed in range(4):
        assert simulate(scenario, seed, Variant("glances", False, 12, entitled=True, glances=True)).quiet_p99 < 0.6


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_takes_all_once_and_in_the_order_of_its_tenant(order: str) -> None:
    waiting, taken = of(order), []
    waiting.told_noisy({"b"})
    for number in range(30):
        waiting.put("abc"[number % 3], number)
    while waiting:
        tenant, number = waiting.take()
        waiting.done(tenant, 0.05 + 0.01 * number)
        taken.append(number)
    assert sorted(taken) == list(range(30))
    for first in range(3):
        assert [number for number in taken if number % 3 == first] == list(range(first, 30, 3))
    with pytest.raises(IndexError):
        waiting.take()
    if order == "quiet_first":
        assert [number % 3 for number in taken[20:]] == [1] * 10, "the noisy one last"


def test_round_robin_shares_by_processing_time() -> None:
    order, worked = of("round_robin"), {"slow": 0.0, "fast": 0.0}
    costs = {"slow": 1.0, "fast": 0.1}
    for _ in range(2000):
        order.put("slow", None)
        order.put("fast", None)
    for _ in range(1000):
        tenant, _ = order.take()
        order.done(tenant, costs[tenant])
        worked[tenant] += costs[tenant]
    assert worked["slow"] == pytest.approx(worked["fast"], rel=0.05)


def ran(**changes: object) -> Queue:
    queue = Queue(parse(document(duration_seconds=200, servers=10, **changes)), 10, 1)
    queue.run()
    return queue


def test_what_always_fails_is_tried_as_often_as_the_scenario_says_and_counts_once() -> None:
    tenants = [{"name": "a", "poison": 1.0, "phases": [{"at": 0, "rate": 1}, {"at": 100, "rate": 0}]}]
    queue = ran(tenants=tenants, failing={"attempts": 4})
    account = queue.accounts["a"]
    assert account.completed == account.offered == len(queue.first_attempts)
    assert sum(account.processing.values()) == pytest.approx(4 * 0.5 * account.offered, rel=0.2)


def test_work_takes_longer_while_its_dependency_is_slow_and_more_servers_come_when_they_should() -> None:
    constant = {"distribution": "constant", "mean_seconds": 0.5}
    queue = ran(service=constant, slowdowns=[[50, 10], [100, 1]])
    worked = queue.accounts["a"].processing
    assert max(n for second, n in worked.items() if second < 50) <= 5
    assert max(worked.values()) >= 5
    busy = document(duration_seconds=100, tenants=[{"name": "a", "phases": [{"at": 0, "rate": 10}]}], scaling=[[50, 9]])
    scaled = Queue(parse(busy | {"service": constant}), 1, 1)
    scaled.run()
    done = scaled.accounts["a"].completions
    assert max(n for second, n in done.items() if second < 50) <= 2
    assert max(n for second, n in done.items() if second > 50) >= 15


def test_the_page_has_a_table_for_each_scenario() -> None:
    short = replace(load("lone-key"), duration=30.0, measure=(0.0, 30.0))
    text, plots = page({"lone-key": short}, 2)
    assert "## lone-key" in text and text.count("\n| ") == 1 + len(short.variants)
    assert plots == {}, "there are no quiet tenants"


def test_throughput_is_counted_while_there_is_demand() -> None:
    """A calm time before makes nobody's loss smaller: half of the servers complete half of what is asked for."""
    tenants = [{"name": "a", "phases": [{"at": 0, "rate": 3}, {"at": 150, "rate": 40}]}]
    scenario = parse(document(duration_seconds=200, servers=10, measure=[0, 200], tenants=tenants))
    all_of_them, half = (simulate(scenario, 1, Variant("nothing", False, servers)) for servers in (10, 5))
    assert while_asked_for(half, all_of_them) == pytest.approx(0.5, abs=0.05)
    assert half.done > 0.62 * all_of_them.done, "so that it is of no use to count all"
    assert while_asked_for(all_of_them, all_of_them) == 1
    calm = simulate(replace(scenario, duration=100.0), 1, Variant("nothing", False, 100))
    assert not calm.demand and while_asked_for(calm, calm) == 1
