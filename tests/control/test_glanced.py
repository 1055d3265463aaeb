"""What follows from how often a broker tells how many wait, and what was allowed while metrics were on their way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.control.allowed import KEPT_SECONDS, Allowed
from alerts.laws.entitlement import Terms
from alerts.laws.glanced import OBEYED_SECONDS, GlancedTerms

SHARES = st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 1000), max_size=3)


@pytest.mark.parametrize(("every", "drain"), [(0.05, OBEYED_SECONDS), (0.1, OBEYED_SECONDS), (0.5, 0.5), (1.0, 1.0)])
def test_what_waits_is_drained_within_the_time_between_two_glances(every: float, drain: float) -> None:
    terms = GlancedTerms.of(Terms()).after([number * every for number in range(9)])
    assert terms.quick().drain_seconds == pytest.approx(drain)


def test_a_first_glance_changes_nothing_and_what_the_operator_set_tighter_stays() -> None:
    terms = GlancedTerms.of(Terms(enter_seconds=0.1, exit_seconds=0.01, lease_seconds=7))
    assert terms.after([3.0]) == terms
    quick = terms.quick()
    assert (quick.enter_seconds, quick.exit_seconds, quick.lease_seconds) == (0.1, 0.01, 7)


def test_by_glances_less_waits_before_those_who_are_held_get_less() -> None:
    terms, quick = Terms(), GlancedTerms.of(Terms()).quick()
    for wait in (0.0, 0.05, 0.1, 0.2):
        assert (quick.part(wait) > 1) == (wait <= quick.exit_seconds)
        assert wait == 0 or quick.part(wait) < terms.part(wait)


@given(st.lists(st.tuples(st.floats(0.01, 3), SHARES), min_size=1), st.floats(0, 3), st.floats(0.01, 5))
def test_what_was_allowed_is_the_mean_over_the_time_in_which_one_was_held(
    told: list[tuple[float, dict[str, float]]], ago: float, span: float
) -> None:
    allowed, at, instants = Allowed(), 100.0, []
    for pause, shares in told:
        at += pause
        instants.append((at, shares))
        allowed.told(shares, at)
    end = at - ago
    start = end - span
    found = allowed.between(start, end)
    pieces = [
        (max(begin, start), min(until, end), shares) for (begin, shares), (until, _) in pairwise([*instants, (at, {})])
    ]
    for name in "abc":
        there = [(until - begin, shares[name]) for begin, until, shares in pieces if name in shares and until > begin]
        seconds = sum(piece for piece, _ in there)
        if seconds > 1e-6:
            mean = sum(piece * share for piece, share in there) / seconds
            assert found[name] == pytest.approx((mean, seconds), rel=1e-6)
        elif not there:
            assert name not in found


def test_no_more_is_remembered_than_looks_reach_back() -> None:
    allowed = Allowed()
    for tenth in range(10_000):
        allowed.told({"a": float(tenth)}, tenth / 10)
    assert len(allowed._told) <= 10 * KEPT_SECONDS + 2
    for tenth in range(10_000):
        allowed.told({"a": 1.0}, 1000 + tenth / 10)
    assert allowed.between(1990, 1999) == {"a": (1.0, 9.0)} and len(allowed._told) <= 2
