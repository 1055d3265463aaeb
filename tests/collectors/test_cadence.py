"""A cycle that cannot keep its interval is given a longer one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.cadence import Cadence


def after(cadence: Cadence, *seconds: float) -> float:
    for one in seconds:
        cadence.took(one)
    return cadence.interval


def test_one_late_cycle_changes_nothing() -> None:
    assert after(Cadence(1), 0.2, 9.0, 0.2, 0.2, 9.0, 0.2, 0.2) == 1


def test_cycles_that_take_longer_are_repeated_at_a_multiple_of_which_half_is_enough_and_back_when_they_do_not() -> None:
    cadence = Cadence(1)
    assert after(cadence, *[1.4] * 5) == 3
    assert after(cadence, *[2.5] * 20) == 3  # it is kept
    assert after(cadence, *[4.0] * 5) == 8
    assert after(cadence, *[0.5] * 4) == 8
    assert after(cadence, 0.5) == 1


def test_what_changed_is_said_once() -> None:
    cadence = Cadence(2)
    said = [cadence.took(5.0) for _ in range(12)]
    assert [one for one in said if one is not None] == [5.0]
    assert cadence.interval == 10


def test_without_an_interval_there_is_nothing_to_keep() -> None:
    assert after(Cadence(0), *[3.0] * 9) == 0


@given(st.floats(0.05, 60), st.lists(st.floats(0, 300), min_size=5, max_size=60))
def test_an_interval_is_a_multiple_of_the_wanted_one_and_steady_cycles_keep_theirs(
    wanted: float, took: list[float]
) -> None:
    cadence = Cadence(wanted)
    interval = after(cadence, *took)
    assert interval >= wanted and interval / wanted == pytest.approx(round(interval / wanted))
    settled = after(cadence, *[took[-1]] * 10)
    assert took[-1] <= settled
    assert after(cadence, *[took[-1]] * 10) == settled
