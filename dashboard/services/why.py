"""Why a queue's messages wait, in words: for its page and for the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from dashboard.services.overview import TRUSTED_COVERAGE
from dashboard.services.say import decimal, duration, instant, listing, messages, percent, rate
from lake.why import Cause, Flow, Part, Told, behind

#: Tenants that are named for what they send.
NAMED = 3
#: A tenant sends more when it is this many times what it was, and this much of what all send more.
_MORE, _MUCH = 1.5, 0.1


def headline(told: Told, zone: tzinfo = UTC) -> str:
    """The wait now, what it was, and since when it rose."""
    if told.rise is None:
        return f"Why it waits cannot be said: {told.reason}."
    rise = told.rise
    if not rise.parts:
        return f"First attempts wait {duration(rise.wait)}, hardly longer than before."
    begun = datetime.fromtimestamp(rise.begun, UTC)
    return (
        f"First attempts wait {duration(rise.wait)}, {duration(rise.seconds)} longer than "
        f"{duration(rise.end - rise.begun)} ago ({instant(begun, told.as_of.astimezone(zone), seconds=True)}); "
        f"{messages(told.ready)} wait."
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a rise: its cause, its seconds, what changed, whether it is the main one, and the SQL behind it."""

    cause: str
    seconds: float
    because: str
    main: bool
    sql: str

    @property
    def words(self) -> str:
        """The seconds as people read them."""
        return signed(self.seconds)


def lines(told: Told) -> tuple[Line, ...]:
    """The parts of the rise, the largest first, what is unknown last."""
    if told.rise is None:
        return ()
    ordered = sorted(told.rise.parts, key=lambda part: (part.cause is Cause.UNKNOWN, -part.seconds))
    return tuple(
        Line(part.cause.value, part.seconds, _changed(part, told), place == 0, told.sql[behind(part.cause)])
        for place, part in enumerate(ordered)
    )


def signed(seconds: float) -> str:
    """``+24 s``, ``−3.1 s``."""
    words = duration(abs(seconds)) if abs(seconds) >= 0.001 else "0 s"
    return words if words == "0 s" else f"{'+' if seconds > 0 else '−'}{words}"


def notes(told: Told) -> list[str]:
    """What one must know before one believes it."""
    found = []
    if told.coverage is None:
        found.append("Nobody knows which part of the queue the events tell of.")
    elif not TRUSTED_COVERAGE <= told.coverage <= 1 / TRUSTED_COVERAGE:
        found.append(f"Events tell of {percent(told.coverage)} of what the broker counts: a guide, not a measure.")
    return found + _limits(told)


def _limits(told: Told) -> list[str]:
    """What limits that are in force hold back without a part of the rise, and why it has none."""
    now, found = [one for one in told.holds if one.ended > told.as_of.timestamp()], []
    strictest = {one.tenant: one for one in sorted(now, key=lambda one: -(one.rate or 0.0)) if not one.in_queue}
    if sent := [f"{one.tenant} is limited to {rate(one.rate)}" for one in strictest.values()]:
        found.append(f"{listing(sent[:NAMED])}: what limits hold back waits before the queue and has no part here.")
    parts = told.rise.parts if told.rise else ()
    slowed = listing(sorted({one.tenant for one in now if one.in_queue})[:NAMED])
    if slowed and all(part.cause is not Cause.THROTTLED for part in parts):
        found.append(f"Consumers of {slowed} are slowed down by us: which part of the wait that is cannot be told.")
    return found


def _changed(part: Part, told: Told) -> str:
    if part.cause is Cause.THROTTLED:
        holds = [one for one in told.holds if one.in_queue]
        tenants, actuators = sorted({one.tenant for one in holds}), sorted({one.actuator for one in holds})
        return (
            f"consumers of {listing(tenants[:NAMED])} slowed down by {listing(actuators)}: "
            f"slots with nothing to do could have begun {messages(part.messages)}"
        )
    if part.now is None:
        return "another order than first in, first out; messages withheld or expired"
    was, now = part.before, part.now
    match part.cause:
        case Cause.ARRIVALS:
            if part.seconds < 0:
                return f"{rate(now)} arrive, less than could be taken before"
            return f"{rate(was)} → {rate(now)}{_who(told.tenants)}"
        case Cause.PARTITION:
            return f"partition {told.partition} has {percent(now)} of what waits since, of what arrives {percent(was)}"
        case Cause.SLOTS:
            return f"{_from_to(decimal(was), decimal(now))} at work at once"
        case Cause.SERVICE_TIME:
            return f"{_from_to(duration(was), duration(now))} an attempt"
        case _:
            return f"{_from_to(percent(was), percent(now))} of all attempts are retries"


def _from_to(was: str, now: str) -> str:
    return now if was == now else f"{was} → {now}"


def _who(tenants: tuple[Flow, ...]) -> str:
    more = sum(max(0.0, each.since - each.before) for each in tenants)
    louder = [
        f"{each.tenant} {rate(each.before)} → {rate(each.since)}"
        for each in tenants
        if each.since > _MORE * each.before and each.since - each.before > _MUCH * more
    ]
    return f", {listing(louder[:NAMED])}" if louder else ""
