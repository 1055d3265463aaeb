"""What messages cost: learnt for each tenant, drawn towards the mean, forgotten; and shares of consumers' time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.costs import PRIOR, Costs
from alerts.laws.entitlement import State, Terms, entitlements, in_work

seconds = st.floats(0.001, 100)


def nobody(_: str) -> float:
    return 0.0


def test_until_any_work_is_known_each_message_costs_one() -> None:
    costs = Costs()
    assert not costs.known and costs.mean == costs.of("a") == 1.0
    costs.look({}, {"a": 10.0})
    assert not costs.known and costs.of("a") == 1.0
    costs.look({"a": 5.0}, {"a": 10.0})
    assert costs.known and costs.mean == 0.5, "messages of whose work nothing was told are not counted"


@given(st.dictionaries(st.text(max_size=3), seconds, min_size=1, max_size=8), st.integers(1, 60))
def test_a_cost_lies_between_the_tenants_own_and_the_queues(own: dict[str, float], looks: int) -> None:
    costs = Costs()
    for _ in range(looks):
        costs.look({name: 5 * cost for name, cost in own.items()}, dict.fromkeys(own, 5.0))
    mean = sum(own.values()) / len(own)
    assert costs.mean == pytest.approx(mean)
    assert costs.of("never seen") == pytest.approx(mean)
    for name, cost in own.items():
        assert min(cost, mean) * 0.999 <= costs.of(name) <= max(cost, mean) * 1.001


def test_few_messages_say_little_and_what_was_long_ago_nothing() -> None:
    costs = Costs()
    costs.look({"many": 100.0, "few": 10.0}, {"many": 1000.0, "few": 1.0})
    assert costs.of("few") < 10 * (1 + PRIOR * 0.2) / (1 + PRIOR)
    for _ in range(2000):  # through the weights' beginning anew
        costs.look({"many": 100.0}, {"many": 1000.0})
    assert costs.of("few") == pytest.approx(0.1, rel=0.01) and costs.mean == pytest.approx(0.1)


def test_a_tenant_of_costly_messages_has_its_part_of_the_time_and_no_more() -> None:
    costs, quiet = Costs(), [f"q{number}" for number in range(7)]
    arrivals = dict.fromkeys(quiet, 10.0) | {"slow": 8.0}
    for _ in range(100):
        costs.look(dict.fromkeys(quiet, 1.0) | {"slow": 5.0}, dict.fromkeys(quiet, 10.0) | {"slow": 2.5})
    seen = in_work({"slow": 0.0}, dict.fromkeys(quiet, 10.0) | {"slow": 2.5}, arrivals, costs)
    assert seen.finish_rate == pytest.approx(12, rel=0.05), "as many servers as are busy"
    shares, _ = entitlements(Terms(probing=1.0), seen, State(seen.finish_rate), nobody, 0.0)
    assert shares["slow"] / costs.of("slow") == pytest.approx(2.5, rel=0.1), "what the others leave of twelve servers"
    for name in quiet:
        assert shares[name] / costs.of(name) > 10, "who asks for little is not held back"


def test_where_all_cost_the_same_shares_are_as_if_messages_were_counted() -> None:
    costs, arrivals = Costs(), {"a": 50.0, "b": 10.0}
    costs.look({"a": 5.0, "b": 1.0}, {"a": 50.0, "b": 10.0})
    seen = in_work({"a": 30.0}, {"a": 40.0, "b": 10.0}, arrivals, costs)
    shares, stranger = entitlements(Terms(), seen, State(seen.finish_rate), nobody, 0.0)
    plain = in_work({"a": 30.0}, {"a": 40.0, "b": 10.0}, arrivals, Costs())
    expected, anybody = entitlements(Terms(), plain, State(50.0), nobody, 0.0)
    assert {name: share / 0.1 for name, share in shares.items()} == pytest.approx(expected)
    assert stranger / 0.1 == pytest.approx(anybody)


def test_what_consumers_do_is_the_work_that_they_did_and_not_what_they_finished() -> None:
    """Four attempts of five fail: they finish a fifth of the messages in as much work."""
    costs = Costs()
    costs.look({"a": 12.0}, {"a": 120.0})
    seen = in_work({"a": 0.0}, {"a": 24.0}, {"a": 24.0}, costs, work={"a": 12.0}, seconds=1.5)
    assert seen.finish_rate == 12.0 and 0 < seen.finish_deviation < 12.0
    lumps = in_work({"a": 0.0}, {"a": 24.0}, {"a": 24.0}, costs, work={"a": 30.0}, seconds=0.1)
    assert lumps.finish_rate == pytest.approx(24.0 * costs.of("a")), "it ends in lumps: messages are counted"
    untold = in_work({"a": 0.0}, {"a": 24.0}, {"a": 24.0}, costs, seconds=1.5)
    assert untold.finish_rate == pytest.approx(24.0 * costs.of("a"))
