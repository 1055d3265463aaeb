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
    """When each link of the chain last wrote to the lake, on the wall clock; None = never."""

    events: datetime | None = None
    samples: datetime | None = None
    metrics: datetime | None = None
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
    ``intervals``: seconds from one reading of a broker to the next, where they are known.
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
    if unread > stale_after_seconds:
        level, reason = (
            Level.STALE,
            (
                f"They were read {duration(round(unread))} ago, and newer ones are being read: "
                "the machine is busy, or the lake is large."
            ),
        )
    else:
        level, reason = _reason(broker, beats, now, allowed[broker])
    shown = f"{instant(oldest, now, seconds=True)}"
    if level is Level.QUIET:
        title = f"No message has moved on {broker} for {duration(round(age))}. Figures are as of {shown}."
    else:
        title = f"Data are {duration(round(age))} old. Everything below shows {shown}, not now."
    return Freshness(level, oldest, age, title, reason)


def _reason(broker: str, beats: Heartbeats, now: datetime, limit: float) -> tuple[Level, str]:
    if beats.collected is None:
        return Level.STALE, f"No collector writes to this lake; its data of {broker} were put in by hand or by replay."
    collected = (now - beats.collected).total_seconds()
    if collected > limit:
        return Level.STALE, (
            f"Collectors last wrote {duration(round(collected))} ago: they are stopped, or cannot reach {broker}. "
            "Look at `sojourn collect`."
        )
    if beats.events is not None and (
        beats.metrics is None or (beats.events - beats.metrics).total_seconds() > min(limit, BEHIND_SECONDS)
    ):
        behind = f", {duration(round((beats.events - beats.metrics).total_seconds()))} behind" if beats.metrics else ""
        return Level.STALE, f"Events arrive, but are not turned into metrics{behind}. Look at `sojourn analyze`."
    if beats.samples is None or (now - beats.samples).total_seconds() > limit:
        return Level.STALE, "Events arrive, but old ones: a replay, a source that catches up, or a wrong clock."
    return Level.QUIET, (
        f"Collectors are alive (last reading {duration(max(1, round(collected)))} ago): nobody sends, or events are "
        "not seen. Compare with the broker's own depth below."
    )


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
