"""Shares by max-min fairness: properties for every input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.max_min import share, shares

rates = st.floats(0, 1e4)
demands = st.dictionaries(st.text(max_size=3), rates, max_size=12)


@given(st.floats(0, 1e5), demands)
def test_the_share_of_each_is_what_it_gets_by_filling_up_from_the_smallest(
    capacity: float, asked: dict[str, float]
) -> None:
    found = shares(capacity, asked)
    for name in asked:
        others = [rate for other, rate in asked.items() if other != name]
        assert found[name] == pytest.approx(share(capacity, others), rel=1e-6, abs=1e-6)


@given(st.floats(0.1, 1e5), st.lists(rates, max_size=12))
def test_a_share_is_at_least_an_equal_part_and_leaves_the_small_all_they_ask_for(
    capacity: float, others: list[float]
) -> None:
    mine = share(capacity, others)
    assert capacity / (len(others) + 1) <= mine * (1 + 1e-9) <= capacity * (1 + 1e-6)
    assert mine + sum(min(other, mine) for other in others) == pytest.approx(capacity)


def test_bertsekas_and_gallagers_filling() -> None:
    assert share(120, [10] * 7) == 50
    assert share(80, [10, 10, 100]) == 30
    assert share(90, [100, 100]) == 30
