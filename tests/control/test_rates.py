"""Properties that the laws of rates keep for every input: additive increase, and the inverse of a backlog."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws import aimd, inverse_backlog
from alerts.laws.bounds import Bounds

rates = st.floats(0.5, 1e5)
priorities = st.sampled_from(sorted(aimd.PRIORITIES))
bounds = st.builds(
    lambda floor, width, step: Bounds(floor, floor + width, step),
    st.floats(0.1, 100),
    st.floats(0, 1e5),
    st.floats(0.05, 1),
)


@given(rates, st.booleans(), priorities, bounds)
def test_an_aimd_limit_stays_in_its_bounds_and_within_one_step(
    current: float, congested: bool, priority: str, within: Bounds
) -> None:
    current = within.within(current)
    limit = aimd.adapt(current, congested=congested, priority=priority, bounds=within).limit
    assert within.floor <= limit <= within.ceiling
    assert abs(limit - current) <= current * within.max_step * (1 + 1e-9)
    assert limit <= current if congested else limit >= current


@given(rates, rates, st.booleans(), priorities, bounds)
def test_aimd_keeps_the_order_of_limits(a: float, b: float, congested: bool, priority: str, within: Bounds) -> None:
    low, high = sorted((within.within(a), within.within(b)))
    adapted = [aimd.adapt(x, congested=congested, priority=priority, bounds=within).limit for x in (low, high)]
    assert adapted[0] <= adapted[1] * (1 + 1e-9)


@pytest.mark.parametrize(("priority", "relieved", "congested"), [("P1", 115, 80), ("P2", 110, 60), ("P3", 105, 40)])
def test_the_gains_are_those_that_zalando_published(priority: str, relieved: float, congested: float) -> None:
    free = Bounds(1, 1000, 1)
    assert aimd.adapt(100, congested=False, priority=priority, bounds=free).limit == pytest.approx(relieved)
    assert aimd.adapt(100, congested=True, priority=priority, bounds=free).limit == pytest.approx(congested)


def test_aimd_brings_two_tenants_to_equal_rates() -> None:
    limits = [90.0, 10.0]
    for _ in range(300):
        congested = sum(limits) > 100
        limits = [aimd.adapt(x, congested=congested, priority="P2", bounds=Bounds(1, 1000, 1)).limit for x in limits]
    assert abs(limits[0] - limits[1]) < 1


@given(rates, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e4), bounds)
def test_the_inverse_limit_never_rises_with_the_backlog(
    base: float, a: float, b: float, target: float, within: Bounds
) -> None:
    low, high = sorted((a, b))
    limits = [inverse_backlog.limit(base, backlog=x, target=target, bounds=within).limit for x in (low, high)]
    assert limits[0] >= limits[1]
    assert all(within.floor <= limit <= within.ceiling for limit in limits)


def test_the_inverse_limit_is_half_at_twice_the_target() -> None:
    assert inverse_backlog.limit(100, backlog=60, target=30, bounds=Bounds(1, 1000, 0.5)).limit == 50
