"""Histograms: any value is found again within the error that is promised, and merging loses nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.histogram import RELATIVE_ERROR, SMALLEST, ZERO_INDEX, bucket_index, bucket_value, merge, quantile

ages = st.floats(min_value=SMALLEST, max_value=1e9, allow_nan=False)


@given(ages)
def test_a_value_is_represented_within_the_relative_error(seconds: float) -> None:
    assert bucket_value(bucket_index(seconds)) == pytest.approx(seconds, rel=RELATIVE_ERROR * 1.0001)


@given(st.lists(ages, min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_the_nearest_rank_within_the_relative_error(values: list[float], q: float) -> None:
    histogram = merge({bucket_index(value): 1} for value in values)
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    assert quantile(histogram, q) == pytest.approx(exact, rel=RELATIVE_ERROR * 1.0001)


@given(st.lists(ages), st.lists(ages))
def test_merging_is_the_histogram_of_all(left: list[float], right: list[float]) -> None:
    def of(values: list[float]) -> dict[int, int]:
        return merge({bucket_index(value): 1} for value in values)

    assert merge([of(left), of(right)]) == of(left + right)


def test_what_is_shorter_than_a_microsecond_counts_as_zero() -> None:
    assert bucket_index(0.0) == bucket_index(SMALLEST / 2) == ZERO_INDEX
    assert bucket_value(ZERO_INDEX) == 0.0


def test_bucket_bounds_are_open_below_and_closed_above() -> None:
    assert bucket_index(1.0) == -1
    assert bucket_index(math.nextafter(1.0, 2.0)) == 0


def test_an_empty_histogram_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None
