"""The rate of requests: unbounded until a service throttles, then just below what it takes."""

from __future__ import annotations

import pytest

from collectors.sqs.pace import Pace


def drive(pace: Pace, seconds: float, quota: int, *, start: float = 0.0) -> list[float]:
    """Ask as fast as the pace allows from a service that takes ``quota`` a second; when it took each request."""
    now, taken, refused = start, [], 0
    while now < start + seconds:
        now += pace.take(now) + 0.0005  # a request takes half a millisecond
        if sum(1 for at in taken[-quota:] if at > now - 1) >= quota:
            pace.throttled(now)
            refused += 1
        else:
            taken.append(now)
    return taken


def test_nothing_waits_until_the_service_throttles() -> None:
    pace = Pace()
    assert [pace.take(index / 1000) for index in range(100)] == [0.0] * 100
    assert pace.rate(0.1) is None


def test_after_a_refusal_requests_are_spread_below_the_rate_that_was_refused() -> None:
    pace = Pace()
    for index in range(1000):
        pace.take(index / 1000)
    pace.throttled(1.0)
    assert pace.rate(1.0) == pytest.approx(700, rel=0.05)
    waits = [pace.take(1.0) for _ in range(8)]
    assert waits == pytest.approx([index / 700 for index in range(8)], rel=0.05)


def test_refusals_of_one_moment_count_once() -> None:
    pace = Pace()
    for index in range(100):
        pace.take(index / 100)
    pace.throttled(1.0)
    once = pace.rate(1.0)
    for _ in range(30):
        pace.throttled(1.1)
    assert once is not None and pace.rate(1.1) == pytest.approx(once, rel=0.02)


def test_the_rate_grows_again_and_the_bound_is_forgotten() -> None:
    pace = Pace()
    for index in range(100):
        pace.take(index / 100)
    pace.throttled(1.0)
    first, later = pace.rate(1.0), pace.rate(6.0)
    assert first is not None and later is not None and later == pytest.approx(1.5 * first)
    assert pace.rate(62.0) is None


def test_a_quota_is_used_and_rarely_exceeded() -> None:
    pace, quota = Pace(), 200
    drive(pace, 20, quota)
    taken = drive(pace, 10, quota, start=20)
    assert 0.6 * quota * 10 <= len(taken) <= quota * 10


def test_it_never_stops_asking() -> None:
    pace = Pace()
    for second in range(100):
        pace.take(second)
        pace.throttled(float(second))
    rate = pace.rate(100.0)
    assert rate is not None and rate >= 1
