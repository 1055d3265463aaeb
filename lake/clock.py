"""Time as our processes count it: on a clock that nobody sets, shown as a wall clock shows it.

Intervals, holds, retries and leases are differences between instants. Setting the wall clock must neither stretch nor
shorten them, so all instants that are remembered are on one clock that begins at the wall clock's time and then runs
with the machine's monotonic one. Only what people read is moved to where the wall clock stands now.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

#: An event may seem to come from the future by so much, clocks being what they are; beyond, no age is known.
TOLERANCE = timedelta(seconds=5)
ZERO = timedelta(0)
#: A broker that is read every so many seconds is silent when so many readings are missing.
READINGS = 3


def fresh_for(seconds: float, interval: float | None) -> float:
    """How many seconds old the data of a broker may be that is read each ``interval`` (None: unknown), where those of
    others may be ``seconds`` old: who is asked once in two minutes is not silent after one."""
    return max(seconds, READINGS * (interval or 0.0))


def _wall() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The instant ``at`` which a clock of ours would have shown when its machine's monotonic clock read zero.

    That one runs from ``boot`` to shutdown, through every process: two epochs of one boot tell how far the clocks of
    two processes lie apart, whoever set the wall clock meanwhile and whether anybody ran then. ``boot`` is empty where
    the machine does not tell its boots apart.
    """

    boot: str
    at: datetime


def apart(before: Epoch | None, after: Epoch | None) -> timedelta | None:
    """By how much instants on the clock of ``before`` move to be on that of ``after``; None where nobody can tell.

    In tenths of a second: no two clocks are read in the same instant.
    """
    if before is None or after is None or not before.boot or before.boot != after.boot:
        return None
    return timedelta(seconds=round((after.at - before.at).total_seconds(), 1))


@cache
def _boot() -> str:
    """What Linux calls this boot of the machine; nothing elsewhere."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Clock:
    """A clock that only runs. Safe to share between threads."""

    def __init__(self, wall: Callable[[], datetime] = _wall, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._began, self._zero = wall(), monotonic()

    def now(self) -> datetime:
        """The instant on this clock, for all reckoning with durations."""
        return self._began + timedelta(seconds=self._monotonic() - self._zero)

    def wall(self) -> datetime:
        """What the wall clock shows, for people, signatures and whoever else compares it with a clock of their own."""
        return self._wall()

    @property
    def epoch(self) -> Epoch:
        """By what later processes on this machine know this clock."""
        return Epoch(_boot(), self._began - timedelta(seconds=self._zero))

    @property
    def ahead(self) -> timedelta:
        """How far the wall clock has been set ahead of this one since it began, in tenths of a second.

        Below zero if it was set back; zero as long as nobody sets it.
        """
        return timedelta(seconds=round((self._wall() - self.now()).total_seconds(), 1))

    def latest(self) -> datetime:
        """The latest instant that something which has happened may claim: :data:`TOLERANCE` ahead of both clocks.

        The same judgement as :func:`age`'s: what claims a later one has no age, whichever clock is right.
        """
        return max(self._wall(), self.now()) + TOLERANCE


def age(instant: datetime, now: datetime, ahead: timedelta = ZERO) -> timedelta:
    """How old what was stamped ``instant`` by some other clock is at ``now`` of ours, whose wall clock is ``ahead``.

    Where our wall clock was set, either it was wrong before or it is now: the younger age that can be is believed.
    One below minus :data:`TOLERANCE` is of an instant in the future by both: no age at all.
    """
    ages = [now - instant, now + ahead - instant]
    return min((known for known in ages if known >= -TOLERANCE), default=max(ages))
