"""How old the figures are, and which part of the chain is behind: said aloud, never hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType

from dashboard.services.keys import Row
from dashboard.services.say import count, duration, instant
from lake.clock import fresh_for

#: Metrics that were written so many seconds before the newest events are behind them.
BEHIND_SECONDS = 5.0


class Level(Enum):
    """How loudly the age of the data must be said."""

    FRESH = "fresh"
    QUIET = "quiet"  # no message moves, but the collectors are alive
    STALE = "stale"


class Evaluation(Enum):
    """Whether somebody evaluates the rules, as the alert process says of itself."""

    RUNS = "rules are evaluated"
    LATE = "the alert process has evaluated no rule for a minute"
    SILENT = "no alert process answers: no rule is evaluated"
    UNTOLD = ""  # nobody has told where it listens

    @classmethod
    def of(cls, ready: bool | None) -> Evaluation:
        """What the alert process answered when it was asked whether it is ready; None: nothing."""
        return {True: cls.RUNS, False: cls.LATE, None: cls.SILENT}[ready]


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """When each link of the chain last wrote to the lake, on the wall clock; None = never.

    ``metrics`` are made of events alone, ``state`` of both events and samples.
    """

    events: datetime | None = None
    samples: datetime | None = None
    metrics: datetime | None = None
    state: datetime | None = None
    alerts: datetime | None = None

    @property
    def collected(self) -> datetime | None:
        """The last sign of life of any collector."""
        return max((at for at in (self.events, self.samples) if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of what is shown: ``as_of`` is data time, ``title`` and ``reason`` are for the banner."""

    level: Level
    as_of: datetime
    age_seconds: float
    title: str = ""
    reason: str = ""


def newest(health: Iterable[Row]) -> dict[str, datetime]:
    """By broker how far its data reach: the newest ``as_of`` of its rows."""
    as_of: dict[str, datetime] = {}
    for row in health:
        as_of[row["broker"]] = max(row["as_of"], as_of.get(row["broker"], row["as_of"]))
    return as_of


def intervals(health: Iterable[Row]) -> dict[str, float | None]:
    """By broker how many seconds lie between two readings of it, by the newest; None: it is not sampled."""
    read = [row for row in health if row["staleness_seconds"] is not None]
    read.sort(key=lambda row: row["staleness_seconds"], reverse=True)  # the newest is the last to be noted
    return {row["broker"]: row["sample_interval_seconds"] for row in read}


def freshness(
    as_of: Mapping[str, datetime],
    beats: Heartbeats,
    now: datetime,
    stale_after_seconds: float,
    read_at: datetime | None = None,
    intervals: Mapping[str, float | None] = MappingProxyType({}),
) -> Freshness | None:
    """How fresh the data of the brokers in ``as_of`` are, judged by the most behind; None without data.

    ``read_at``: when they were read, if that is not now: what came since is not known to who shows them.
    ``intervals``: seconds from one reading of a broker to the next, of those that are sampled; None where unknown.
    """
    if not as_of:
        return None
    allowed = {broker: fresh_for(stale_after_seconds, intervals.get(broker)) for broker in as_of}
    ages = {broker: max(0.0, (now - at).total_seconds()) for broker, at in as_of.items()}
    broker = max(as_of, key=lambda name: (ages[name] > allowed[name], ages[name]))
    oldest, age = as_of[broker], ages[broker]
    if age <= allowed[broker]:
        return Freshness(Level.FRESH, oldest, age)
    unread = 0.0 if read_at is None else (now - read_at).total_seconds()
    shown = instant(oldest, now, seconds=True)
    level, title = Level.STALE, f"Data are {duration(round(age))} old. Everything below shows {shown}, not now."
    if unread > stale_after_seconds:
        reason = (
            f"They were read {duration(round(unread))} ago, and newer ones are being read: "
            "the machine is busy, or the lake is large."
        )
    elif (broken := _broken(broker, beats, now, allowed[broker], sampled=broker in intervals)) is not None:
        reason = broken
    elif broker in intervals:  # a queue in which nothing moves is read all the same
        title = f"{broker} was not read for {duration(round(age))}. Its queues are shown as of {shown}, not now."
        reason = (
            "It does not answer, refuses, or has no queue left; what else is collected arrives. Ask `sojourn doctor`."
        )
    else:
        level, title = (
            Level.QUIET,
            f"No message has moved on {broker} for {duration(round(age))}. Figures are as of {shown}.",
        )
        reason = "Collectors are alive: nobody sends, or events are not seen."
    return Freshness(level, oldest, age, title, reason)


def _broken(broker: str, beats: Heartbeats, now: datetime, limit: float, *, sampled: bool) -> str | None:
    """Which link of the chain is behind, for all brokers; None: each of them wrote lately."""
    if beats.collected is None:
        return f"No collector writes to this lake; its data of {broker} were put in by hand or by replay."
    if (collected := (now - beats.collected).total_seconds()) > limit:
        return (
            f"Collectors last wrote {duration(round(collected))} ago: they are stopped, or cannot reach {broker}. "
            "Look at `sojourn collect`."
        )
    if (behind := _behind(beats.events, beats.metrics, min(limit, BEHIND_SECONDS))) is not None:
        return f"Events arrive, but are not turned into metrics{behind}. Look at `sojourn analyze`."
    if sampled and (behind := _behind(beats.samples, beats.state, limit)) is not None:
        return f"Readings arrive, but are not turned into metrics{behind}. Look at `sojourn analyze`."
    if beats.samples is None or (now - beats.samples).total_seconds() > limit:
        return "Events arrive, but old ones: a replay, a source that catches up, or a wrong clock."
    return None


def _behind(written: datetime | None, turned: datetime | None, limit: float) -> str | None:
    """By how much what is ``turned`` into metrics is behind what was ``written``, in words; None: within ``limit``."""
    if written is None:
        return None
    if turned is None:
        return ""
    seconds = (written - turned).total_seconds()
    return f", {duration(round(seconds))} behind" if seconds > limit else None


def incomplete(gap: Row, now: datetime) -> tuple[str, str]:
    """Title and reason of the banner while events from before ``gap`` (since, events) opened are still being read."""
    what = "Earlier events" if gap["events"] is None else f"{count(gap['events'])} earlier events"
    reason = (
        f"The analysis was away, and since {instant(gap['since'], now, seconds=True)} it reads the newest first. "
        "Ages, rates and the broker's own counts are right already; alerts on backlogs stay as they are."
    )
    return f"{what} are still being read: backlogs are unknown until then.", reason


#: What nobody knows as long as a journal cannot be read.
_UNREAD = {
    "alert_transitions": "Alerts are unknown",
    "actions": "Limits and actions are unknown",
    "deliveries": "Whether receivers are told of alerts is unknown",
}


def unread(table: str, reason: str) -> tuple[str, str]:
    """Title and reason of the banner while the journal ``table`` cannot be read."""
    return (
        f"{_UNREAD[table]}: their journal cannot be read.",
        f"Everything else is known. Why: {reason}. If it stays so, restore that table from a copy.",
    )
