"""The token bucket lets through what its rate and burst allow, however it is asked; the client's is the same law."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.token_bucket import Level, TokenBucket, full, refill, take, take_some
from sojourn.client.bucket import Bucket


@given(st.floats(0.1, 1000), st.floats(1, 100), st.lists(st.floats(0, 2), min_size=1, max_size=200))
def test_a_token_bucket_lets_no_more_through_than_burst_plus_rate_times_time(
    rate: float, burst: float, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate, burst)
    now, level, allowed = 0.0, full(bucket, 0.0), 0
    for gap in gaps:
        now += gap
        taken = take(bucket, level, now)
        level, allowed = taken.level, allowed + taken.allowed
        assert 0 <= level.tokens <= burst
        assert taken.allowed or taken.wait_seconds > 0
        if not taken.allowed:
            assert take(bucket, level, now + taken.wait_seconds).allowed
    assert allowed <= burst + rate * now + 1e-6


@given(st.floats(0.1, 1000), st.floats(1, 100), st.floats(0, 100), st.floats(0, 2), st.integers(0, 200))
def test_some_tokens_are_what_taking_them_one_by_one_gives(
    rate: float, burst: float, tokens: float, gap: float, wanted: int
) -> None:
    bucket, now = TokenBucket(rate, burst), 10.0 + gap
    count, wait, level = take_some(bucket, Level(tokens, 10.0), now, wanted)
    left = refill(bucket, Level(tokens, 10.0), now)
    for _ in range(count):
        taken = take(bucket, left, now)
        assert taken.allowed
        left = taken.level
    assert level == left
    assert wait == (0.0 if count == wanted else take(bucket, left, now).wait_seconds)
    assert count == wanted or not take(bucket, left, now).allowed


@given(st.floats(0.1, 1000), st.floats(1, 100), st.lists(st.floats(0, 2), min_size=1, max_size=100))
def test_the_client_keeps_the_same_law(rate: float, burst: float, gaps: list[float]) -> None:
    law, level = TokenBucket(rate, burst), full(TokenBucket(rate, burst), 0.0)
    bucket = Bucket(rate, burst, math.inf, 0.0)
    now = 0.0
    for gap in gaps:
        now += gap
        taken = take(law, level, now)
        level = taken.level
        assert bucket.take(now) == taken.wait_seconds
