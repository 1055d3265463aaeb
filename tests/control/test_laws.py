"""What the throttling laws decide, and what they keep for every input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws import conserving
from alerts.laws.bounds import Bounds
from alerts.laws.limits import Alert, Harm, Kind, Limit, Terms, Verdict, untrusted
from alerts.laws.observation import Observation
from alerts.laws.share import base_rate, relief_rate
from alerts.laws.throttle import decide

TERMS = Terms(
    law="aimd",
    priority="P2",
    bounds=Bounds(1, 1000, 0.5),
    cooldown_seconds=5,
    lease_seconds=15,
    min_coverage=0.8,
    max_staleness_seconds=15,
    target_seconds=10,
)
NOISY = Observation(
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
)
HARM = Harm(since=90.0, backlog=500, finish_rate=80.0)
CALM = replace(NOISY, depth=3, backlog=5, quiet_age_seconds=0.2, calm=True, arrival_rate=10.0)
IN_FORCE = Limit(rate=10, base=10, changed_at=100, valid_until=115, arrival_before=120)


def test_a_noisy_tenant_is_limited_to_its_fair_share() -> None:
    verdict = decide(replace(TERMS, bounds=Bounds(1, 1000, 1.0)), NOISY, None, Alert.ACTIVE, 100.0, HARM)
    assert verdict.kind is Kind.THROTTLE
    assert verdict.limit == Limit(rate=10, base=10, changed_at=100, valid_until=115, arrival_before=120)
    assert "share of 80/s" in verdict.reason


def test_the_first_limit_is_one_step_from_what_the_tenant_sends_and_the_next_ones_go_on() -> None:
    verdict = decide(TERMS, NOISY, None, Alert.ACTIVE, 100.0, HARM)
    assert verdict.limit is not None and (verdict.limit.rate, verdict.limit.base) == (60, 10)
    obeyed = replace(NOISY, arrival_rate=60.0)
    again = decide(TERMS, obeyed, verdict.limit, Alert.ACTIVE, 106.0)
    assert again.kind is Kind.THROTTLE and again.limit is not None and again.limit.rate == 30


def test_a_share_is_what_the_others_leave_less_what_draining_takes() -> None:
    seen = replace(NOISY, finish_rate=120.0, others_rate=70.0, backlog=600.0)
    assert base_rate(TERMS, seen) == 50
    assert relief_rate(TERMS, seen, 50) == 40
    assert relief_rate(TERMS, replace(seen, backlog=1e6), 50) == 15  # an equal share at the least


def test_who_sends_as_always_while_others_rise_is_not_to_blame() -> None:
    """A large tenant at its 40/s; the others rose from 50/s to 140/s, and the queue takes 120/s."""
    large = replace(NOISY, arrival_rate=41, others_rate=140, finish_rate=120, usual_rate=40, others_usual=50)
    harm = decide(TERMS, large, None, Alert.ACTIVE, 100.0).harm
    verdict = decide(TERMS, large, None, Alert.ACTIVE, 102.0, harm)
    assert (verdict.kind, verdict.code) == (Kind.SKIP, "sends_as_always") and "from 50/s to 140/s" in verdict.reason
    # Whoever rose has been limited since: that makes the large one no guiltier, nor does a second spell of waiting.
    calmer = replace(large, others_rate=60)
    assert decide(TERMS, calmer, None, Alert.ACTIVE, 130.0, verdict.harm).code == "sends_as_always"
    quiet = decide(TERMS, replace(calmer, quiet_age_seconds=0.1), None, Alert.ACTIVE, 140.0, verdict.harm)
    assert quiet.code == "no_harm" and quiet.harm is not None
    late = replace(large, usual_rate=41, others_usual=120, others_rate=100)
    again = decide(TERMS, late, None, Alert.ACTIVE, 150.0, quiet.harm)
    assert again.kind is Kind.WAIT
    assert decide(TERMS, late, None, Alert.ACTIVE, 152.0, again.harm).code == "sends_as_always"


@pytest.mark.parametrize(
    "sends",
    [
        {"arrival_rate": 90, "usual_rate": 40, "others_rate": 140, "others_usual": 50},  # it rose
        {"arrival_rate": 90, "usual_rate": 90, "others_rate": 52, "others_usual": 50},  # the others did not
        {"arrival_rate": 90, "usual_rate": None, "others_rate": 140, "others_usual": 50},  # nothing tells what it sent
    ],
)
def test_who_rose_or_was_too_much_from_the_start_is_limited_as_ever(sends: dict[str, Any]) -> None:
    large = replace(NOISY, finish_rate=80, **sends)
    harm = decide(TERMS, large, None, Alert.ACTIVE, 100.0).harm
    assert decide(TERMS, large, None, Alert.ACTIVE, 102.0, harm).kind is Kind.THROTTLE


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (replace(NOISY, quiet_age_seconds=9.9), "no_harm"),
        (replace(NOISY, finish_rate=0.0), "no_base"),
        (replace(NOISY, finish_rate=50.0), "consumers_slow"),
        (replace(NOISY, finish_rate=200.0), "consumers_return"),
        (replace(NOISY, arrival_rate=0.0), "sends_nothing"),
        (replace(NOISY, arrival_rate=9.0, backlog=499.0), "within_share"),
    ],
)
def test_who_harms_nobody_is_left_alone(seen: Observation, code: str) -> None:
    verdict = decide(TERMS, seen, None, Alert.ACTIVE, 100.0, HARM)
    assert (verdict.code, verdict.limit) == (code, None)


@pytest.mark.parametrize("begun", [0.0, 0.05, 2.4])
def test_retries_and_what_is_stuck_are_no_harm_however_old_they_are(begun: float) -> None:
    """Quiet tenants' messages of a minute ago are tried again, 500 of them; what is new begins at once."""
    seen = replace(NOISY, quiet_age_seconds=60.0, backlog=2000, quiet_ready=500, quiet_rate=70)
    seen = replace(seen, quiet_first_age=begun, first_age=begun)
    assert decide(TERMS, seen, None, Alert.ACTIVE, 100.0, HARM).code == "no_harm"
    unknown = replace(seen, quiet_first_age=None, first_age=None)
    assert decide(TERMS, unknown, None, Alert.ACTIVE, 100.0, HARM).kind is Kind.THROTTLE, "of who began nobody tells"
    waits = replace(seen, quiet_first_age=10.1, first_age=10.1)
    assert decide(TERMS, waits, None, Alert.ACTIVE, 100.0, HARM).kind is Kind.THROTTLE


def test_a_limit_is_let_go_although_an_old_message_is_tried_again() -> None:
    gone = replace(IN_FORCE, alert_active=False, gone_since=100.0)
    seen = replace(CALM, calm=False, quiet_age_seconds=60.0, arrival_rate=2.0)
    assert decide(TERMS, seen, gone, Alert.GONE, 110.0).code == "not_calm"
    begins = replace(seen, quiet_first_age=0.1, first_age=0.1)
    assert decide(TERMS, begins, gone, Alert.GONE, 110.0).kind is Kind.RELEASE


def test_what_was_usual_outlives_a_look_of_which_nothing_can_be_known() -> None:
    harm = replace(HARM, usual_rate=40.0, others_usual=50.0, usual_at=90.0)
    for seen, alert in ((None, Alert.ACTIVE), (NOISY, Alert.UNKNOWN)):
        verdict = decide(TERMS, seen, None, alert, 100.0, harm)
        assert verdict.kind is Kind.SKIP and verdict.harm is not None and verdict.harm.usual_rate == 40.0
        again = decide(TERMS, NOISY, None, Alert.ACTIVE, 101.0, verdict.harm)
        assert again.code == "unconfirmed", "harm is to be seen twice anew"


def test_harm_is_believed_when_it_is_seen_twice() -> None:
    once = decide(TERMS, NOISY, None, Alert.ACTIVE, 100.0)
    assert (once.kind, once.code) == (Kind.WAIT, "unconfirmed")
    assert decide(TERMS, NOISY, None, Alert.ACTIVE, 100.15, once.harm).code == "unconfirmed"
    again = decide(TERMS, NOISY, None, Alert.ACTIVE, 100.5, once.harm)
    assert (again.kind, again.harmed_seconds) == (Kind.THROTTLE, 0.5)


def test_the_same_data_looked_at_twice_are_seen_once() -> None:
    once = decide(TERMS, NOISY, None, Alert.ACTIVE, 100.0)
    assert NOISY.data_age_seconds is not None
    for seconds in (0.5, 1.0, 2.0):
        same = replace(NOISY, data_age_seconds=NOISY.data_age_seconds + seconds)
        assert decide(TERMS, same, None, Alert.ACTIVE, 100.0 + seconds, once.harm).code == "unconfirmed"


@pytest.mark.parametrize(
    ("seconds", "before", "code"),
    [
        (0.5, 71.0, "consumers_return"),
        (0.5, 72.0, "alert"),
        (1.0, 63.0, "consumers_return"),
        (1.0, 65.0, "alert"),
    ],
)
def test_consumers_come_back_however_soon_the_second_look_is(seconds: float, before: float, code: str) -> None:
    """A fifth less a second ago is half as much less half a second ago, of the 80/s that they finish now."""
    now = replace(NOISY, completion_rate=60.0)
    once = decide(TERMS, replace(now, finish_rate=before), None, Alert.ACTIVE, 100.0)
    assert decide(TERMS, now, None, Alert.ACTIVE, 100.0 + seconds, once.harm).code == code


def test_a_tenant_within_its_share_is_limited_where_the_backlog_grows_all_the_same() -> None:
    costly = replace(NOISY, arrival_rate=8.0, backlog=600)
    verdict = decide(TERMS, costly, None, Alert.ACTIVE, 100.0, HARM)
    assert verdict.limit is not None and verdict.limit.rate == pytest.approx(8 * 0.6)
    early = decide(TERMS, costly, None, Alert.ACTIVE, 94.0, HARM)
    assert early.code == "within_share"
    known = replace(costly, cost_rests_on=40.0)
    assert decide(TERMS, known, None, Alert.ACTIVE, 100.0, HARM).code == "within_share", "its share is of work"


def test_a_tenant_beyond_its_share_by_no_more_than_chance_is_left_alone() -> None:
    """A share of 10/s is what 80/s finished and 70/s of others leave: each a count over five seconds."""
    for rate, code in ((20.0, "within_share"), (35.0, "alert")):
        seen = replace(NOISY, arrival_rate=rate, recent_seconds=5.0, backlog=499.0)
        assert decide(TERMS, seen, None, Alert.ACTIVE, 100.0, HARM).code == code
    agreed = decide(replace(TERMS, rate=10.0), replace(NOISY, arrival_rate=12.0), None, Alert.ACTIVE, 100.0, HARM)
    assert agreed.kind is Kind.THROTTLE, "a rate that was set has no chance in it"


def test_a_limit_that_is_used_up_rises_once_nobody_suffers_though_the_alert_lasts() -> None:
    verdict = decide(TERMS, replace(CALM, arrival_rate=10.0), IN_FORCE, Alert.ACTIVE, 106.0)
    assert verdict.kind is Kind.RELAX and verdict.limit is not None and verdict.limit.rate == 15
    unused = decide(TERMS, replace(CALM, arrival_rate=2.0), IN_FORCE, Alert.ACTIVE, 106.0)
    assert (unused.kind, unused.code) == (Kind.RELEASE, "unused")


def test_consumers_that_stop_lower_no_limit() -> None:
    stopped = [replace(NOISY, arrival_rate=10, backlog=520 + 80 * s, finish_rate=0.0) for s in range(60)]
    assert Kind.THROTTLE not in [verdict.kind for verdict in rounds(stopped)]


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (None, "no_data"),
        (replace(NOISY, data_age_seconds=16.0), "stale_data"),
        (replace(NOISY, data_age_seconds=None), "stale_data"),
        (replace(NOISY, data_age_seconds=-6.0), "future_data"),
        (replace(NOISY, sample_age_seconds=-6.0), "future_data"),
        (replace(NOISY, depth=None), "no_sample"),
        (replace(NOISY, sample_age_seconds=None), "no_sample"),
        (replace(NOISY, sample_age_seconds=20.0), "stale_sample"),
        (replace(NOISY, coverage=None), "no_coverage"),
        (replace(NOISY, coverage=0.5), "low_coverage"),
    ],
)
@pytest.mark.parametrize("alert", [Alert.ACTIVE, Alert.GONE])
def test_nothing_is_done_on_data_that_cannot_be_trusted(seen: Observation | None, code: str, alert: Alert) -> None:
    verdict = decide(TERMS, seen, IN_FORCE, alert, 110.0)
    assert (verdict.kind, verdict.code, verdict.limit) == (Kind.SKIP, code, IN_FORCE)


def test_a_coverage_of_few_messages_is_not_judged() -> None:
    assert untrusted(TERMS, replace(NOISY, depth=3, backlog=1, coverage=0.2)) is None
    assert untrusted(TERMS, replace(NOISY, depth=10, backlog=100, coverage=0.2)) is not None


def test_a_coverage_is_not_judged_by_what_consumers_finish_between_two_counts() -> None:
    """A broker was asked in the middle of a second, 87 were there; at its end 59 were left of them, at 140/s."""
    drained = replace(NOISY, depth=27, backlog=59, coverage=59 / 87, finish_rate=140)
    assert untrusted(TERMS, drained) is None
    slower = replace(drained, finish_rate=20, completion_rate=20)
    assert untrusted(TERMS, slower) == ("low_coverage", "events show 68% of the broker's count, 80% is needed")


def test_an_alert_that_is_unknown_leaves_a_limit_to_its_lease() -> None:
    verdict = decide(TERMS, NOISY, IN_FORCE, Alert.UNKNOWN, 110.0)
    assert (verdict.kind, verdict.limit) == (Kind.SKIP, IN_FORCE)


def test_a_lease_is_renewed_when_half_of_it_is_over() -> None:
    assert decide(TERMS, NOISY, IN_FORCE, Alert.ACTIVE, 104.0).kind is Kind.WAIT
    verdict = decide(TERMS, NOISY, IN_FORCE, Alert.ACTIVE, 108.0)
    assert verdict.kind is Kind.HOLD
    assert verdict.limit is not None and verdict.limit.valid_until == 123.0


def rounds(seen: list[Observation], alert: Alert = Alert.ACTIVE, terms: Terms = TERMS) -> list[Verdict]:
    """One verdict for each second after the limit was set, each going on from the one before."""
    verdicts, limit = [], IN_FORCE
    for second, observation in enumerate(seen, start=1):
        verdicts.append(decide(terms, observation, limit, alert, 100.0 + second))
        assert verdicts[-1].limit is not None
        limit = verdicts[-1].limit
    return verdicts


def test_a_backlog_that_shrinks_lowers_the_limit_no_further_though_ages_still_rise() -> None:
    draining = [
        replace(NOISY, arrival_rate=10, backlog=520 - 10 * s, quiet_age_seconds=12 + 0.5 * s) for s in range(40)
    ]
    assert all(verdict.kind in (Kind.HOLD, Kind.WAIT) for verdict in rounds(draining))


def test_a_backlog_that_does_not_shrink_lowers_the_limit_at_the_second_look() -> None:
    stuck = [replace(NOISY, arrival_rate=10, backlog=520 + s) for s in range(16)]
    kinds = [verdict.kind for verdict in rounds(stuck)]
    assert kinds.index(Kind.THROTTLE) == 14  # cooldown, then two looks a cooldown apart
    assert kinds.count(Kind.THROTTLE) == 1


def test_quiet_tenants_that_do_not_wait_are_no_reason_to_lower_a_limit() -> None:
    busy = [replace(NOISY, arrival_rate=10, backlog=520 + 10 * s, quiet_age_seconds=2.0) for s in range(40)]
    assert Kind.THROTTLE not in [verdict.kind for verdict in rounds(busy)]


def test_a_limit_that_is_not_obeyed_is_not_lowered() -> None:
    ignored = [replace(NOISY, arrival_rate=120, backlog=520 + 50 * s) for s in range(60)]
    verdicts = rounds(ignored, terms=replace(TERMS, effect_seconds=6))
    assert Kind.THROTTLE not in [verdict.kind for verdict in verdicts]
    assert verdicts[-1].limit is not None and verdicts[-1].limit.obeyed is False


def test_after_the_alert_a_limit_grows_step_by_step_and_is_released_when_unused() -> None:
    blocked = replace(CALM, arrival_rate=100.0)
    rising = [v.limit.rate for v in rounds([blocked] * 21, Alert.GONE) if v.limit is not None and v.kind is Kind.RELAX]
    assert rising == [15.0, 22.5, 32.5, 42.5]
    released = decide(TERMS, CALM, replace(IN_FORCE, rate=15.0, alert_active=False), Alert.GONE, 110.0)
    assert (released.kind, released.limit, released.code) == (Kind.RELEASE, None, "unused")


def test_an_alert_that_comes_back_lowers_the_limit_at_once() -> None:
    relaxed = replace(IN_FORCE, rate=40.0, alert_active=False, gone_since=90.0)
    verdict = decide(TERMS, NOISY, relaxed, Alert.ACTIVE, 106.0)
    assert verdict.kind is Kind.THROTTLE
    assert verdict.limit is not None and verdict.limit.rate == 20


def test_an_alert_that_comes_back_within_the_cooldown_lowers_the_limit_after_it() -> None:
    limit: Limit | None = replace(IN_FORCE, rate=40.0, alert_active=False, gone_since=90.0)
    verdicts = []
    for second in range(1, 8):
        verdicts.append(decide(TERMS, NOISY, limit, Alert.ACTIVE, 100.0 + second))
        limit = verdicts[-1].limit
    assert [verdict.kind for verdict in verdicts].index(Kind.THROTTLE) == 4
    assert verdicts[4].reason.startswith("the alert came back")


def test_a_queue_that_others_keep_busy_does_not_hold_a_tenant_for_ever() -> None:
    gone = replace(IN_FORCE, alert_active=False, gone_since=105.0)
    assert decide(TERMS, NOISY, gone, Alert.GONE, 110.0).kind is Kind.HOLD
    assert decide(TERMS, NOISY, replace(gone, valid_until=500), Alert.GONE, 406.0).kind is Kind.SKIP


def test_the_inverse_policy_follows_the_quiet_tenants_age_both_ways() -> None:
    terms = replace(TERMS, law="inverse_backlog")
    worse = decide(terms, replace(NOISY, arrival_rate=10, quiet_age_seconds=21), IN_FORCE, Alert.ACTIVE, 106.0)
    assert worse.kind is Kind.THROTTLE and worse.limit is not None and worse.limit.rate == 5
    better = decide(terms, replace(NOISY, arrival_rate=5, quiet_age_seconds=5), worse.limit, Alert.ACTIVE, 112.0)
    assert better.kind is Kind.RELAX and better.limit is not None and better.limit.rate == 7.5


observations = st.builds(
    Observation,
    data_age_seconds=st.none() | st.floats(-1, 30),
    sample_age_seconds=st.none() | st.floats(0, 30),
    depth=st.none() | st.floats(0, 1e6),
    coverage=st.none() | st.floats(0, 2),
    backlog=st.floats(0, 1e6),
    quiet_age_seconds=st.floats(0, 1e4),
    calm=st.booleans(),
    completion_rate=st.floats(0, 1e5),
    active_tenants=st.integers(0, 100),
    arrival_rate=st.floats(0, 1e5),
    others_rate=st.floats(0, 1e5),
    finish_rate=st.floats(0, 1e5),
    ready=st.none() | st.floats(0, 1e6),
    recent_seconds=st.sampled_from([0.0, 5.0]),
)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.none() | observations, st.sampled_from(list(Alert))), max_size=40),
    st.sampled_from(["aimd", "rate_limit", "inverse_backlog"]),
)
def test_whatever_happens_limits_keep_bounds_steps_and_leases(
    history: list[tuple[float, Observation | None, Alert]], law: str
) -> None:
    terms = replace(TERMS, law=law)
    limit: Limit | None = None
    harm: Harm | None = None
    now = 1000.0
    for gap, seen, alert in history:
        now += gap
        if limit is not None and limit.valid_until <= now:
            limit = None
        verdict = decide(terms, seen, limit, alert, now, harm)
        assert verdict == decide(terms, seen, limit, alert, now, harm)
        if verdict.kind is Kind.THROTTLE and limit is None:
            assert seen is not None and verdict.limit is not None
            assert harm is not None and now - harm.since >= 0.5 and seen.quiet_age_seconds > terms.target_seconds
            assert verdict.limit.rate >= terms.bounds.within((1 - terms.bounds.max_step) * seen.arrival_rate) - 1e-9
        harm = verdict.harm
        assert verdict.reason and verdict.code
        if verdict.limit is not None:
            assert terms.bounds.floor <= verdict.limit.rate <= terms.bounds.ceiling
            assert verdict.limit.valid_until <= now + terms.lease_seconds
        if verdict.kind is Kind.SKIP:
            assert verdict.limit == limit
        if limit is not None and verdict.limit is not None and verdict.limit.rate != limit.rate:
            conserves = verdict.code in ("idle", "overshot")
            assert now - limit.changed_at >= (conserving.PROBE_SECONDS if conserves else terms.cooldown_seconds)
            assert verdict.code != "overshot" or limit.rose_from is not None
            assert abs(verdict.limit.rate - limit.rate) <= terms.bounds.max_step * limit.rate * (1 + 1e-9)
        limit = verdict.limit
