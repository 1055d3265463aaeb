"""What every law that a policy may choose keeps to, whatever is measured; a new one is one case here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from alerts.control.active_limit import Key, Target
from alerts.control.minds import Minds
from alerts.control.settings import PolicySettings
from alerts.control.signals import SIGNALS
from alerts.laws import registry
from alerts.laws.limits import Alert, Kind, Limit, Verdict
from alerts.laws.observation import Observation

KEY = Key("policy", Target("mq", "orders", "t0"))
BUSY = Observation(
    data_age_seconds=0.4,
    sample_age_seconds=1.0,
    depth=500,
    coverage=0.98,
    backlog=520,
    quiet_age_seconds=12.0,
    calm=False,
    completion_rate=80.0,
    active_tenants=8,
    arrival_rate=120.0,
    others_rate=70.0,
    finish_rate=80.0,
    usual_rate=10.0,
    others_usual=70.0,
    ready=500,
)
CALM = replace(BUSY, depth=3, backlog=5, quiet_age_seconds=0.1, calm=True, arrival_rate=10.0, ready=2.0)


class Case(NamedTuple):
    """A law: its policy's keys, what it must not act on, and what it must."""

    keys: dict[str, Any]
    well: Observation
    ill: Observation


DELIVERED = replace(BUSY, attempts=1000.0, failures=2.0, attempt_rate=100.0)
PUBLISHED = replace(BUSY, publishes=50.0, publish_seconds=0.01, publish_errors=0.0)
CASES = {
    **{name: Case({}, CALM, BUSY) for name in registry.SHARES},
    "output_rate": Case({}, DELIVERED, replace(DELIVERED, failures=200.0)),
    "client_throttle": Case({}, DELIVERED, replace(DELIVERED, failures=900.0)),
    "concurrency": Case(
        {"options": {"service_seconds": 0.1}}, replace(BUSY, prefetch=2.0), replace(BUSY, prefetch=200.0)
    ),
    "gradient": Case(
        {"options": {"guard_seconds": 1.0}},
        replace(BUSY, processing_seconds=0.1, prefetch=50.0, in_work=20.0),
        replace(BUSY, processing_seconds=4.0, prefetch=200.0, in_work=200.0),
    ),
    "publishing": Case({}, PUBLISHED, replace(PUBLISHED, publish_seconds=0.5)),
    "prefetch": Case(
        {"options": {"network_seconds": 0.1}},
        replace(BUSY, processing_seconds=0.004, prefetch=26.0),
        replace(BUSY, processing_seconds=0.04, prefetch=200.0),
    ),
    "permits": Case({"options": {"buffer": 500}}, replace(CALM, own_backlog=5.0), replace(BUSY, own_backlog=480.0)),
    "codel": Case({}, CALM, BUSY),
    "squelch": Case({"max_step": 1.0, "options": {"places": 3000}}, CALM, replace(BUSY, depth=2500)),
}
LAWS = sorted(CASES)
OWN = sorted(registry.LAWS)


def policy(law: str, **changes: Any) -> PolicySettings:
    common = {"name": "p", "law": law, "floor": 1.0, "ceiling": 1000.0, "cooldown_seconds": 5.0, "lease_seconds": 20.0}
    return PolicySettings(**common | CASES[law].keys | changes)


class Life:
    """One tenant under one law, looked at again and again."""

    def __init__(self, law: str, **changes: Any) -> None:
        self.settings = policy(law, **changes)
        self.terms = self.settings.terms(3.0)
        self.minds, self.now = Minds(), 1000.0
        self.limit: Limit | None = None
        self.verdicts: list[Verdict] = []

    def look(self, seen: Observation | None, alert: Alert = Alert.ACTIVE, seconds: float = 1.0) -> Verdict:
        self.now += seconds
        if self.limit is not None and self.limit.valid_until <= self.now:
            self.limit = None  # its lease ended
        verdict = self.minds.decide(KEY, self.terms, seen, self.limit, alert, self.now)
        self.limit = verdict.limit
        self.verdicts.append(verdict)
        return verdict

    def looks(self, seen: Observation, seconds: int, alert: Alert = Alert.ACTIVE) -> Life:
        for _ in range(seconds):
            self.look(self.obeying(seen), alert)
        return self

    def obeying(self, seen: Observation) -> Observation:
        """``seen`` of a tenant that keeps to its limit."""
        if self.limit is None:
            return seen
        rate = min(seen.arrival_rate, self.limit.rate)
        attempts = None if seen.attempt_rate is None else min(seen.attempt_rate, self.limit.rate)
        return replace(seen, arrival_rate=rate, attempt_rate=attempts)


def test_every_law_that_can_be_chosen_has_its_case() -> None:
    assert sorted(registry.names()) == LAWS
    for name in OWN:
        law = registry.law_class(name)
        assert law.says and law.source and law.signal in ("", *SIGNALS)
        assert set(law.needs) <= {*SIGNALS.get(law.signal, ()), *Observation.__slots__, "max_min_share"}
        assert all(one.metadata["says"] for one in registry.options_of(name))


@pytest.mark.parametrize("law", LAWS)
def test_a_law_limits_where_it_must_at_the_second_look_and_lets_go_when_all_is_well(law: str) -> None:
    case, life = CASES[law], Life(law)
    life.look(case.ill)
    assert life.limit is None, "seen once"
    life.looks(case.ill, 30)
    assert life.limit is not None and life.limit.rate < case.ill.arrival_rate
    assert next(v for v in life.verdicts if v.kind is Kind.THROTTLE).reason
    life.looks(case.well, 600, Alert.GONE)
    assert life.limit is None, life.verdicts[-1]


@pytest.mark.parametrize("law", ["output_rate", "client_throttle", "publishing"])
def test_who_sends_ever_more_while_nothing_fails_is_not_limited(law: str) -> None:
    well, life = CASES[law].well, Life(law)
    for number in range(60):
        more = 1 + number / 3
        attempts, rate = (None if value is None else value * more for value in (well.attempts, well.attempt_rate))
        seen = replace(well, arrival_rate=well.arrival_rate * more, attempts=attempts, attempt_rate=rate)
        verdict = life.look(seen)
        assert life.limit is None, verdict.reason


@pytest.mark.parametrize("law", LAWS)
def test_a_law_leaves_alone_who_is_well(law: str) -> None:
    life = Life(law).looks(CASES[law].well, 60)
    assert {verdict.limit for verdict in life.verdicts} == {None}
    assert Life(law).looks(CASES[law].ill, 60, Alert.GONE).limit is None, "nobody is limited whom no alert names"


numbers = st.floats(0, 1e4)
seen_at_random = st.builds(
    lambda **changes: replace(BUSY, **changes),
    depth=numbers,
    backlog=numbers,
    ready=numbers,
    quiet_age_seconds=st.floats(0, 100),
    calm=st.booleans(),
    arrival_rate=numbers,
    others_rate=numbers,
    finish_rate=numbers,
    own_backlog=numbers,
    processing_seconds=st.floats(0, 10),
    prefetch=st.floats(0, 1000),
    in_work=st.floats(0, 1000),
    attempts=numbers,
    failures=numbers,
    attempt_rate=numbers,
    publishes=st.floats(0, 40),
    publishes_probed=st.booleans(),
    publish_seconds=st.one_of(st.none(), st.floats(0, 3)),
    publish_errors=st.floats(0, 1),
)
alerts = st.sampled_from([Alert.ACTIVE] * 4 + [Alert.GONE, Alert.UNKNOWN])


@pytest.mark.parametrize("law", LAWS)
@settings(max_examples=30, deadline=None)
@given(
    looks=st.lists(st.tuples(seen_at_random, alerts, st.floats(0.1, 40)), max_size=40),
    step=st.floats(0.05, 1.0),
    floor=st.floats(0.001, 50),
)
def test_a_limit_keeps_its_bounds_its_step_its_cooldown_and_its_lease(
    law: str, looks: list[tuple[Observation, Alert, float]], step: float, floor: float
) -> None:
    floor = max(floor, 1.0) if policy(law).counts else floor
    life = Life(law, floor=floor, max_step=1.0 if law == "squelch" else step)
    bounds, own = life.terms.bounds, life.terms.own
    for seen, alert, seconds in looks:
        before = life.limit
        verdict = life.look(seen, alert, seconds)
        after = verdict.limit
        assert verdict.reason and verdict.code
        if before is None or after is None:
            if after is not None:
                sent = own.sent(seen) if own else seen.arrival_rate
                assert bounds.floor <= after.rate <= bounds.ceiling
                assert after.rate >= sent * (1 - bounds.max_step) * (1 - 1e-9) or after.rate == bounds.ceiling
            continue
        if before.valid_until <= life.now:
            continue
        assert 0 < bounds.floor <= after.rate <= bounds.ceiling, "never starved"
        assert abs(after.rate - before.rate) <= before.rate * bounds.max_step * (1 + 1e-9)
        assert after.valid_until <= life.now + life.terms.lease_seconds
        if after.rate < before.rate:
            assert life.now - before.changed_at >= life.terms.cooldown_seconds
            assert alert is Alert.ACTIVE


@pytest.mark.parametrize("law", LAWS)
def test_nothing_changes_on_what_cannot_be_trusted_and_the_tenant_passes_when_the_lease_ends(law: str) -> None:
    case = CASES[law]
    for changes, alert in (
        ({"data_age_seconds": 60.0}, Alert.ACTIVE),
        ({"sample_age_seconds": None}, Alert.ACTIVE),
        ({"coverage": 0.3}, Alert.ACTIVE),
        ({}, Alert.UNKNOWN),
    ):
        life = Life(law).looks(case.ill, 30)
        limit = life.limit
        assert limit is not None
        for _ in range(5):
            verdict = life.look(replace(case.ill, **changes), alert)
            assert (verdict.kind, verdict.limit) == (Kind.SKIP, limit)
        life.look(replace(case.ill, **changes), alert, seconds=21)
        assert life.limit is None


@pytest.mark.parametrize("law", OWN)
def test_a_law_whose_signal_is_unknown_does_nothing_and_says_so(law: str) -> None:
    case = CASES[law]
    of_views = {*Observation.__slots__}.intersection(registry.law_class(law).needs)  # what is derived has no field
    blind = replace(case.ill, **dict.fromkeys(of_views))
    life = Life(law)
    assert {life.look(blind).kind for _ in range(5)} == {Kind.SKIP}
    life.looks(case.ill, 30)
    limit = life.limit
    verdict = life.look(blind)
    assert (verdict.kind, verdict.limit) == (Kind.SKIP, limit)
    assert verdict.code in ("no_signal", "no_sample")


@pytest.mark.parametrize("law", LAWS)
def test_the_worse_the_signal_the_lower_the_limit(law: str) -> None:
    case = CASES[law]
    rates = [life.limit.rate if (life := Life(law).looks(seen, 30)).limit else 1e9 for seen in (case.well, case.ill)]
    assert rates[1] < rates[0]


@pytest.mark.parametrize("law", LAWS)
def test_the_same_looks_give_the_same_limits(law: str) -> None:
    one, other = (Life(law).looks(CASES[law].ill, 40) for _ in range(2))
    assert one.verdicts == other.verdicts


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"law": "output_rat"}, "there is no law 'output_rat': did you mean 'output_rate'"),
        ({"law": "codel", "options": {"intervall_seconds": 2}}, "did you mean 'interval_seconds'"),
        ({"law": "codel", "options": {"target_seconds": "500ms"}}, "must be a number in seconds"),
        ({"law": "codel", "options": {"target_seconds": 9, "interval_seconds": 1}}, "below the interval"),
        ({"law": "output_rate", "options": {"ill": 1.5}}, "ill ≤ 1"),
        ({"law": "publishing", "options": {"most_errors": True}}, "must be a number"),
        ({"law": "squelch", "max_step": 1.0}, "needs the option 'places'"),
        ({"law": "squelch", "options": {"places": 100}}, "max_step = 1"),
        ({"law": "prefetch", "floor": 0.5, "options": {"network_seconds": 0.1}}, "at least 1"),
        ({"law": "concurrency", "options": {"service_seconds": 0.0}, "floor": 1}, "service_seconds must be above 0"),
        ({"law": "gradient", "floor": 0.5, "options": {"guard_seconds": 1}}, "at least 1"),
        ({"law": "client_throttle", "options": {"k": 0.5}}, "at least 1: below, a healthy backend"),
        ({"law": "permits", "options": {"buffer": 5, "batch": 6}}, "a batch of 6"),
        ({"law": "aimd", "options": {"places": 100}}, "has no option 'places'"),
        ({"law": "aimd", "kind": "aimd"}, "say the same twice"),
        ({"law": "output_rate", "floor": 5, "ceiling": 1}, "floor"),
    ],
)
def test_what_makes_no_sense_is_refused_and_told_with_what_was_meant(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PolicySettings(name="p", **keys)
