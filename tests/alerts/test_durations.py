from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("1d", 86400), ("250ms", 0.25), ("0", 0), (15, 15), ("1m30s", 90)],
)
def test_durations_are_read_as_prometheus_reads_them(text: object, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "m5", "30s5m", "-5s", "soon", None, True, -3])
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**10))
def test_a_duration_that_is_written_reads_back_the_same(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration
