from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dashboard.services import say

NOW = datetime(2026, 3, 1, 3, 7, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (0.0004, "< 1 ms"),
        (0.042, "42 ms"),
        (0.9996, "1 s"),
        (1.25, "1.2 s"),
        (9.96, "10 s"),
        (42, "42 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3_600, "1 h"),
        (7_620, "2 h 7 min"),
        (277_000, "3 d 4 h"),
        (-5, "−5 s"),
    ],
)
def test_a_duration_is_said_in_the_two_units_that_matter(seconds: float | None, words: str) -> None:
    assert say.duration(seconds) == words


@pytest.mark.parametrize(
    ("function", "value", "words"),
    [
        (say.count, 1240, "1,240"),
        (say.count, None, "unknown"),
        (say.count, float("nan"), "unknown"),
        (say.messages, 1, "1 message"),
        (say.messages, 1240, "1,240 messages"),
        (say.rate, 12.34, "12.3/s"),
        (say.rate, 0.0, "0/s"),
        (say.rate, 0.001, "< 0.01/s"),
        (say.rate, 1500.4, "1,500/s"),
        (say.percent, 0.613, "61 %"),
        (say.percent, 0.004, "< 1 %"),
        (say.percent, 0.0, "0 %"),
        (say.percent, None, "unknown"),
        (say.age, None, "none waiting"),
    ],
)
def test_a_figure_has_its_unit_and_unknown_is_a_word(function, value, words: str) -> None:
    assert function(value) == words


def test_a_time_of_another_day_carries_its_date() -> None:
    assert say.clock(NOW - timedelta(minutes=5), NOW) == "03:02"
    assert say.clock(NOW - timedelta(hours=9), NOW) == "28 Feb 18:07"


def test_a_clock_a_little_ahead_of_ours_is_just_now() -> None:
    assert say.ago(NOW + timedelta(seconds=2), NOW) == "just now"
    assert say.ago(NOW - timedelta(seconds=130), NOW) == "2 min 10 s ago"


def test_a_list_reads_like_a_sentence() -> None:
    assert say.listing(["a"]) == "a"
    assert say.listing(["a", "b", "c"]) == "a, b and c"
