"""How a consumer group fares on one partition, judged over a window of its commits and by two facts of the log.

The rules are Burrow's (LinkedIn, core/internal/evaluator/caching.go), applied to what can be seen from outside without
reading the commits themselves: an observation is a committed offset, when it was seen to change, and the lag then. A
commit that changes nothing is not seen; instead a group that has members is observed once an interval, moving or not.
So STALL is a group at work that does not advance, and STOP a group that nobody works for. Two more are facts and wait
for no window: LOST, the log begins behind what the group has committed, and BLOCKED, a transaction that does not end
hides from the group what is written.

Each rule is a predicate over the window (and ``now``), nothing else. Times are in seconds on any one clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

Status: TypeAlias = Literal["OK", "WARN", "REWIND", "STALL", "BLOCKED", "STOP", "LOST"]

#: From the least to the most alarming: a group on a topic is as its worst partition is.
SEVERITY: tuple[Status, ...] = ("OK", "WARN", "REWIND", "STALL", "BLOCKED", "STOP", "LOST")


class Progress(NamedTuple):
    """What is seen of a group on one partition in a cycle.

    ``offset`` is what it has committed (−1: nothing, and where it will begin is known); ``lag`` what waits for it;
    ``overtaken`` how many messages between ``offset`` and the log's first are gone. ``held``: nothing is left before an
    open transaction that the group could read if it reads committed records, and the transaction does not end;
    ``committed_only``: the group is known to read committed records alone.
    """

    offset: int
    lag: int
    overtaken: int = 0
    held: bool = False
    committed_only: bool = False


class Observation(NamedTuple):
    """A committed offset, when it was seen, and how many messages were before it then (None: not known)."""

    offset: int
    at: float
    lag: int | None


class Window(NamedTuple):
    """The newest observations, oldest first, at least one; and when the group was last seen without lag, if ever."""

    observations: Sequence[Observation]
    caught_up_at: float | None = None


def lag_was_never_zero(window: Window, allowed: int = 0) -> bool:
    """Rule 1: a consumer that caught up at any time in the window is sound."""
    return all(seen.lag is None or seen.lag > allowed for seen in window.observations)


def rewound_at(window: Window) -> int | None:
    """Rule 2: the first observation whose offset is less than the one before it, if there is one."""
    seen = window.observations
    return next((index for index in range(1, len(seen)) if seen[index].offset < seen[index - 1].offset), None)


def rewind_recovered(window: Window, index: int) -> bool:
    """Rule 2, second part: after the rewind at ``index`` the consumer came back to where it had been."""
    before = window.observations[index - 1].offset
    return any(seen.offset >= before for seen in window.observations[index:])


def stopped(window: Window, now: float) -> bool:
    """Rule 3: the last observation is longer ago than all the observations took."""
    first, last = window.observations[0], window.observations[-1]
    return now - last.at > last.at - first.at


def stalled(window: Window) -> bool:
    """Rule 4: the consumer is there, and its offset never changes."""
    return len({seen.offset for seen in window.observations}) == 1


def lag_never_falls(window: Window) -> bool:
    """Rule 5: the consumer advances, and its lag does not fall anywhere in the window: it is too slow."""
    lags = [seen.lag for seen in window.observations if seen.lag is not None]
    return all(later >= earlier for earlier, later in pairwise(lags))


def caught_up_lately(window: Window, now: float, patience: float) -> bool:
    """Rule 6: without lag at some time in the last ``patience`` seconds: too early to call it stopped."""
    return window.caught_up_at is not None and now - window.caught_up_at <= patience


def judge(window: Window, lag: int, now: float, *, patience: float, allowed: int = 0) -> Status:
    """The status of a partition that has ``lag`` now. The rules in Burrow's order."""
    if lag <= allowed:
        return "OK"
    if stopped(window, now) and not caught_up_lately(window, now, patience):
        return "STOP"
    rewind = rewound_at(window)
    if rewind is not None and not rewind_recovered(window, rewind):
        return "REWIND"
    if lag_was_never_zero(window, allowed):
        if stalled(window):
            return "STALL"
        if lag_never_falls(window):
            return "WARN"
    return "OK"


def with_facts(status: Status | None, seen: Progress) -> Status | None:
    """``status`` (None: too early to say), unless the log itself says worse.

    Whether a group reads committed records is not told by Kafka: one that is not known to do so and stands still in
    front of an open transaction does so by all appearances.
    """
    if seen.overtaken:
        return "LOST"
    if seen.held and (seen.committed_only or status == "STALL"):
        return worst([status or "OK", "BLOCKED"])
    return status


def worst(statuses: Sequence[Status]) -> Status:
    """The most alarming of ``statuses``."""
    return max(statuses, key=SEVERITY.index)
