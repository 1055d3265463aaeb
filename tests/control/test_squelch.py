"""A sender that is told in time never finds the buffer full, and is never left quiet while there is room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws.squelch import Terms, step


@given(st.integers(0, 20), st.integers(0, 5), st.integers(1, 60), st.lists(st.integers(0, 8), min_size=1, max_size=200))
def test_nothing_overflows_whatever_the_receiver_works_off(
    delay: int, rate: int, spare: int, worked: list[int]
) -> None:
    """Ticks of a second: the sender sends ``rate`` a tick unless it heard, ``delay`` ticks ago, to be quiet."""
    # What is looked at once a tick is told up to a tick late.
    terms = Terms(2 * (delay + 1) * rate + spare, delay + 1.0, float(rate))
    waiting, squelched, words = 0, False, [False] * (delay + 1)
    for done in worked:
        waiting += 0 if words[-1 - delay] else rate
        assert waiting <= terms.places
        waiting = max(0, waiting - done)
        squelched, reason = step(terms, squelched, waiting)
        assert reason
        words.append(squelched)


@given(st.integers(1, 1000), st.floats(0, 10), st.floats(0, 40), st.integers(0, 1000), st.booleans())
def test_the_headroom_is_kept_and_an_empty_buffer_takes_anything(
    spare: int, delay: float, rate: float, waiting: int, before: bool
) -> None:
    headroom = Terms(10_000, delay, rate).headroom
    terms = Terms(2 * headroom + spare, delay, rate)
    quiet, _ = step(terms, before, waiting)
    assert quiet or terms.places - waiting > headroom
    assert not step(terms, before, 0)[0], "never starved"
    assert quiet or not step(terms, False, waiting)[0], "who was not told is told no sooner"


def test_ten_milliseconds_at_a_thousand_a_second_keep_ten_places() -> None:
    terms = Terms(100, 0.01, 1000)
    assert terms.headroom == 10
    assert [step(terms, False, waiting)[0] for waiting in (89, 90)] == [False, True]
    assert [step(terms, True, waiting)[0] for waiting in (80, 79)] == [True, False]
    with pytest.raises(ValueError, match="too few"):
        Terms(20, 0.01, 1000)
