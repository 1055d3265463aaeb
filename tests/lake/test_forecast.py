"""Forecasts: exact where nothing is left to chance, wider the less is known, and never what they cannot know."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.forecasts import LONGEST, over_all, summed
from lab.scenario import names
from lake.forecast import FEWEST, breached, drained, overtaken, reached
from tests.support.deep import examples


def test_an_even_flow_drains_when_arithmetic_says() -> None:
    forecast = reached(600.0, [50.0] * 20, [80.0] * 20, 5.0, 0.0)
    assert forecast is not None
    assert [round(after, 1) for after in (forecast.early, forecast.middle, forecast.late)] == [100.0] * 3
    growing = drained(600.0, [80.0] * 20, [50.0] * 20, 5.0)
    assert growing is not None and math.isinf(growing.early)


def test_the_wait_of_who_comes_passes_the_target_at_target_times_pace() -> None:
    forecast = breached(200.0, 30.0, [60.0] * 20, [50.0] * 20, 5.0)  # 10/s go: room for 100 more, and 2/s more come
    assert forecast is not None and forecast.middle == pytest.approx(50.0, rel=0.1)
    assert forecast.early < forecast.middle < forecast.late
    assert breached(301.0, 30.0, [60.0] * 20, [50.0] * 20, 5.0) is None  # it is passed already
    assert breached(10.0, 30.0, [60.0] * 20, [0.0] * 20, 5.0) is None  # nothing goes: no pace to count by


def test_retention_overtakes_what_is_unread_as_fast_as_more_comes_than_goes() -> None:
    forecast = overtaken(600.0, [80.0] * 20, [50.0] * 20, 5.0)
    assert forecast is not None and forecast.middle == pytest.approx(100.0, rel=0.1)
    assert forecast.early < forecast.middle < forecast.late
    kept = overtaken(600.0, [50.0] * 20, [80.0] * 20, 5.0)
    assert kept is not None and math.isinf(kept.early)


def test_too_little_says_nothing_and_nothing_waiting_is_drained() -> None:
    assert drained(10.0, [1.0] * (FEWEST - 1), [2.0] * (FEWEST - 1), 5.0) is None
    forecast = drained(0.0, [1.0] * FEWEST, [2.0] * FEWEST, 5.0)
    assert forecast is not None and (forecast.early, forecast.late) == (0.0, 0.0)


@settings(max_examples=examples(100, 200), deadline=None)
@given(
    distance=st.floats(0.0, 1e6),
    flows=st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), min_size=FEWEST, max_size=60),
    wander=st.floats(0.0, 0.5),
)
def test_intervals_are_in_order_and_wider_where_rates_wander_more(
    distance: float, flows: list[tuple[float, float]], wander: float
) -> None:
    away, towards = zip(*flows, strict=True)
    forecast, wider = (reached(distance, away, towards, 5.0, more) for more in (wander, wander + 0.1))
    assert forecast is not None and wider is not None
    assert 0 <= forecast.early <= forecast.middle <= forecast.late
    assert 0 <= forecast.probability <= 1
    if not math.isinf(forecast.late):
        assert wider.late >= forecast.late * 0.999
        assert wider.early <= forecast.early * 1.001


@pytest.mark.timeout(600)
def test_four_in_five_hold_over_all_of_the_labs_scenarios() -> None:
    """As docs/forecasts.md lists one by one: the whole is what an 80 % interval promises, within 5 %."""
    found = over_all(range(5))
    assert set(found) == set(names())
    for gone, late in (summed(found), summed(found, without=LONGEST)):
        assert gone.made > 700 and 0.75 <= gone.share <= 0.85, gone
        assert late.made > 200 and 0.75 <= late.share <= 0.85, late
