"""The judgement of a consumer's commits: Burrow's cases, and what must hold of any window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kafka.history import History, PartitionHistory
from collectors.kafka.settings import StatusSettings
from collectors.kafka.status import (
    Observation,
    Progress,
    Status,
    Window,
    caught_up_lately,
    judge,
    lag_never_falls,
    lag_was_never_zero,
    rewind_recovered,
    rewound_at,
    stalled,
    stopped,
    worst,
)


def window(*seen: tuple[int, float, int | None], caught_up_at: float | None = None) -> Window:
    return Window([Observation(*one) for one in seen], caught_up_at)


#: Three observations, 10 s apart, of a consumer that moves: (offset, at, lag).
MOVING = ((1000, 100.0, 50), (1100, 110.0, 60), (1200, 120.0, 70))


@pytest.mark.parametrize(
    ("seen", "lag", "now", "expected"),
    [
        # Sound: the lag falls somewhere, or was nothing at some time, or is nothing now.
        (window((1000, 100, 50), (1100, 110, 40), (1200, 120, 60)), 60, 125, "OK"),
        (window((1000, 100, 0), (1100, 110, 40), (1200, 120, 60)), 60, 125, "OK"),
        (window((1000, 100, 50), (1100, 110, 0), (1100, 120, 60)), 60, 125, "OK"),
        (window(*MOVING), 0, 125, "OK"),
        (window(*MOVING), 0, 9999, "OK"),  # nothing to do is no stop, however long ago
        # Slow: it advances, and the lag only grows or stands.
        (window(*MOVING), 70, 125, "WARN"),
        (window((1000, 100, 50), (1100, 110, 50), (1200, 120, 50)), 50, 125, "WARN"),
        (window((1000, 100, None), (1100, 110, 50), (1200, 120, 60)), 60, 125, "WARN"),
        # At work, and not advancing.
        (window((1000, 100, 50), (1000, 110, 50), (1000, 120, 50)), 50, 125, "STALL"),
        (window((1000, 100, 50), (1000, 110, 60), (1000, 120, 70)), 70, 125, "STALL"),
        # Silent for longer than the window took.
        (window(*MOVING), 70, 140, "WARN"),
        (window(*MOVING), 70, 140.1, "STOP"),
        (window((1000, 100, 0), (1100, 110, 0), (1200, 120, 0)), 70, 200, "STOP"),
        (window((1000, 100, 50)), 50, 101, "STOP"),  # one commit ever, and lag
        # Just caught up: a pause is not yet a stop.
        (window((1200, 120, 0), caught_up_at=195), 70, 200, "OK"),
        # Went back: until it is where it was.
        (window((1000, 100, 50), (900, 110, 150), (950, 120, 100)), 100, 125, "REWIND"),
        (window((1000, 100, 0), (0, 110, 1000), (50, 120, 950)), 950, 125, "REWIND"),
        (window((1000, 100, 50), (900, 110, 150), (1000, 120, 50)), 50, 125, "OK"),
        (window((1000, 100, 50), (900, 110, 150), (1050, 120, 200)), 200, 125, "WARN"),
    ],
)
def test_a_partition_is_judged_by_its_commits(seen: Window, lag: int, now: float, expected: Status) -> None:
    assert judge(seen, lag, now, patience=30) == expected


def test_each_rule_alone() -> None:
    moving = window(*MOVING)
    assert lag_was_never_zero(moving) and not lag_was_never_zero(moving, allowed=55)
    assert rewound_at(moving) is None
    back = window((5, 0, 1), (3, 1, 3), (4, 2, 2), (6, 3, 0))
    assert rewound_at(back) == 1 and rewind_recovered(back, 1)
    assert not rewind_recovered(window((5, 0, 1), (3, 1, 3)), 1)
    assert not stopped(moving, 140) and stopped(moving, 140.1)
    assert not stalled(moving) and stalled(window((5, 0, 1), (5, 9, 1)))
    assert lag_never_falls(moving) and not lag_never_falls(window((5, 0, 2), (6, 1, 1)))
    assert caught_up_lately(window((5, 0, 0), caught_up_at=1.0), 3.0, 2.0)
    assert not caught_up_lately(window((5, 0, 0), caught_up_at=1.0), 3.1, 2.0)
    assert not caught_up_lately(window((5, 0, 0)), 0.0, 2.0)


def test_a_group_is_as_its_worst_partition() -> None:
    assert worst(["OK", "STALL", "WARN"]) == "STALL"
    assert worst(["REWIND", "STOP"]) == "STOP"
    assert worst(["OK"]) == "OK"


OBSERVATIONS = st.lists(
    st.tuples(st.integers(0, 50), st.floats(0, 10), st.one_of(st.none(), st.integers(0, 20))), min_size=1, max_size=12
)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    at, seen = 0.0, []
    for offset, pause, lag in draw(OBSERVATIONS):
        at += pause
        seen.append(Observation(offset, at, lag))
    return Window(seen, draw(st.one_of(st.none(), st.floats(0, 100))))


@given(windows(), st.floats(0, 1000), st.integers(0, 5))
def test_without_lag_a_partition_is_always_sound(seen: Window, later: float, allowed: int) -> None:
    now = seen.observations[-1].at + later
    for lag in range(allowed + 1):
        assert judge(seen, lag, now, patience=30, allowed=allowed) == "OK"


@given(windows(), st.integers(1, 100))
def test_with_lag_and_long_silence_a_partition_has_always_stopped(seen: Window, lag: int) -> None:
    assert judge(seen, lag, 10_000, patience=30) == "STOP"


@given(windows(), st.integers(0, 100), st.floats(0, 1000), st.floats(-500, 500))
def test_the_judgement_depends_on_differences_of_time_alone(seen: Window, lag: int, later: float, shift: float) -> None:
    shift = float(round(shift))
    rounded = [one._replace(at=float(round(one.at))) for one in seen.observations]
    caught = None if seen.caught_up_at is None else float(round(seen.caught_up_at))
    now = rounded[-1].at + round(later)
    moved = Window([one._replace(at=one.at + shift) for one in rounded], None if caught is None else caught + shift)
    assert judge(Window(rounded, caught), lag, now, patience=30) == judge(moved, lag, now + shift, patience=30)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 40_000), st.booleans()), max_size=80),
    st.integers(3, 10),
)
def test_a_window_is_bounded_in_order_and_loses_no_rewind(steps: list[tuple[int, int, int, bool]], size: int) -> None:
    history, now, before = PartitionHistory(since=0, due=0), 0, None
    for offset, lag, pause, alive in steps:
        now += pause
        history.see(offset, lag, now, alive=alive, interval=15_000, size=size)
        seen = history.window().observations
        assert 1 <= len(seen) <= size
        assert [one.at for one in seen] == sorted(one.at for one in seen)
        assert seen[-1].offset == offset
        if before is not None and offset < before:
            assert seen[-2].offset == before
        before = offset


def test_a_living_group_that_stands_still_stalls_and_a_dead_one_stops() -> None:
    for alive, expected in ((True, "STALL"), (False, "STOP")):
        history = PartitionHistory(since=0, due=0)
        for second in range(300):
            history.see(7, 5, second * 1000, alive=alive, interval=15_000, size=10)
        assert judge(history.window(), 5, 300.0, patience=150) == expected


def judged(
    history: History, group: str, topic: str, offsets: dict[int, tuple[int, int]], now: int, *, alive: bool
) -> Status | None:
    seen = {partition: Progress(*one) for partition, one in offsets.items()}
    return history.judge(group, topic, seen, now, alive=alive).status


def test_a_topic_is_judged_by_its_worst_partition_and_not_before_half_a_window() -> None:
    history = History(StatusSettings(window=10, interval=15))
    seen = []
    for second in range(400):
        offsets = {0: (second, 5), 1: (7, 3), 2: (second, 0)}  # one is slow, one stands, one has no lag
        seen.append(judged(history, "g", "t", offsets, second * 1000, alive=True))
    assert seen[:75] == [None] * 75
    assert seen[-1] == "STALL"
    offsets = {0: (1, 999), 1: (9, 0), 2: (500, 0)}
    assert judged(history, "g", "t", offsets, 400_000, alive=True) == "REWIND"  # at once
    assert judged(history, "g", "t", {2: (500, 0)}, 401_000, alive=True) == "OK"  # the others are not known now
    assert judged(history, "g", "t", offsets, 402_000, alive=True) == "REWIND"  # and not forgotten
    assert judged(history, "g", "u", {}, 402_000, alive=True) is None


def test_what_is_not_seen_any_more_is_forgotten() -> None:
    history = History(StatusSettings(window=4, interval=1))
    for second in range(10):
        judged(history, "g", "t", {0: (5, 5)}, second * 1000, alive=True)
        history.keep({("g", "t")})
    assert judged(history, "g", "t", {0: (5, 5)}, 10_000, alive=True) == "STALL"
    history.keep(set())
    assert judged(history, "g", "t", {0: (5, 5)}, 11_000, alive=True) is None
