"""Hermes' output rate: the published steps, and what must hold whatever fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.output_rate import Mode, State, Terms, step


def test_hermes_published_steps() -> None:
    terms, state = Terms(most=100.0), State(50.0)
    state, _ = step(terms, state, 1000, 10, 0.0)
    assert state.rate == 60.0, "50 + 0.2 × (100 − 50)"
    state, _ = step(terms, state, 1000, 50, 30.0)
    assert state.rate == 60.0, "up to 5 % it is as it is"
    state, reason = step(terms, state, 1000, 60, 60.0)
    assert state.rate == 48.0 and "6% of 1000 failed" in reason
    state, _ = step(terms, state, 100, 51, 90.0)
    assert state.mode is Mode.SLOW and state.limit == pytest.approx(1 / 60)
    state, _ = step(terms, state, 1, 1, 150.0)
    assert state.mode is Mode.HEARTBEAT and state.limit == pytest.approx(1 / 300)
    state, _ = step(terms, state, 1, 0, 450.0)
    assert state.mode is Mode.NORMAL and state.limit == 1.0


@given(st.lists(st.tuples(st.floats(0.1, 60), st.integers(0, 100), st.floats(0, 1)), max_size=100))
def test_it_keeps_its_bounds_is_judged_in_time_and_comes_back(sends: list[tuple[float, int, float]]) -> None:
    terms, state, now = Terms(most=80.0, least=2.0), State(80.0), 0.0
    for wait, sent, part in sends:
        now += wait
        before = state
        state, reason = step(terms, state, sent, round(sent * part), now)
        assert reason and terms.least <= state.rate <= terms.most and 0 < state.limit <= terms.most
        if state != before:
            assert now - before.judged_at >= terms.every_seconds and sent
    for _ in range(40):
        now += terms.every_seconds
        state, _ = step(terms, state, 100, 0, now)
    assert state.rate == pytest.approx(terms.most, rel=0.01), "well for long enough, it is as fast as it may"


@pytest.mark.parametrize("terms", [{"most": 0.5}, {"most": 5, "well": 0.2}, {"most": 5, "slow_down": 1.0}])
def test_terms_that_make_no_sense_are_refused(terms: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Terms(**terms)
    with pytest.raises(ValueError, match="failed of"):
        step(Terms(most=5), State(1.0), 1, 2, 0.0)
