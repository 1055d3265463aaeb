"""Whether what the pages say can be trusted: each link of the chain from broker to webhook, the weakest said first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.services.freshness import BEHIND_SECONDS, Evaluation, Freshness, Heartbeats, Level, newest
from dashboard.services.keys import QueueKey, Row
from dashboard.services.overview import TRUSTED_COVERAGE
from dashboard.services.say import ago, count, duration, instant, listing, percent
from lake.clock import fresh_for

#: Queues and reasons that are named.
NAMED = 10


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain: what it is, its state in a word or two, what that means. ``good`` is None: not there."""

    name: str
    state: str
    note: str
    good: bool | None


def links(
    fresh: Freshness | None,
    beats: Heartbeats,
    gap: Row | None,
    refused: Iterable[Row],
    deliveries: Iterable[Row],
    now: datetime,
    limit: float,
    evaluated: Evaluation,
    unread: Mapping[str, str],
    interval: float | None = None,
) -> tuple[Link, ...]:
    """The links from collectors to receivers at ``now``; what wrote nothing for ``limit`` seconds is behind.

    ``refused``: rows that collectors could not take, by source and reason; ``deliveries`` of the last day;
    ``unread``: why, by journal that cannot be read; ``interval``: seconds between two readings of the broker that is
    read most often.
    """
    return (
        _written(
            "Events",
            beats.events,
            "sojourn collect",
            now,
            limit,
            quiet=fresh is not None and fresh.level is Level.QUIET,
        ),
        _written("Readings of brokers", beats.samples, "sojourn collect", now, fresh_for(limit, interval)),
        _metrics(beats, now),
        _history(gap, now),
        _refused(list(refused)),
        rules(beats, evaluated, now),
        *([] if "deliveries" in unread else [_told(list(deliveries), now)]),
        *(Link(f"Table {table}", "cannot be read", f"{why}.", False) for table, why in unread.items()),
    )


def verdict(found: Sequence[Link], fresh: Freshness | None, off: Sequence[tuple[str, str]] = ()) -> str:
    """One sentence: whether the figures of now can be believed; ``off``: the queues that are :func:`uncovered`."""
    weak = [link.name.lower() for link in found if link.good is False]
    if fresh is None:
        return "There is nothing to trust yet"
    if fresh.level is Level.STALE:
        return "Do not trust what the pages say of now"
    if weak:
        return f"Look at {listing(weak)}"
    whose = off[0][0] if len(off) == 1 else f"{len(off)} queues" if len(off) < NAMED else "many queues"
    return f"What the pages say can be trusted{f', but for {whose}: see coverage' if off else ''}"


def brokers(health: Iterable[Row], now: datetime) -> list[tuple[str, str, str, str]]:
    """(broker, queues, its newest data, its newest reading) of each broker."""
    found: dict[str, list[Row]] = {}
    for row in health:
        found.setdefault(row["broker"], []).append(row)
    rows, reached = [], newest(row for queues in found.values() for row in queues)
    for broker, queues in sorted(found.items()):
        as_of = reached[broker]
        stale = [row["staleness_seconds"] for row in queues if row["staleness_seconds"] is not None]
        reading = "never" if not stale else "at once" if min(stale) < 1 else f"{duration(round(min(stale)))} before"
        rows.append((broker, count(len(queues)), f"{instant(as_of, now, seconds=True)}, {ago(as_of, now)}", reading))
    return rows


def uncovered(health: Iterable[Row], names: Mapping[QueueKey, str]) -> list[tuple[str, str]]:
    """Queues of which events tell too little, or more than the broker counts, with their coverage; the worst first."""
    off = [
        (abs(row["coverage"] - 1), names[QueueKey.of(row)], percent(row["coverage"]))
        for row in health
        if row["coverage"] is not None and not TRUSTED_COVERAGE <= row["coverage"] <= 1 / TRUSTED_COVERAGE
    ]
    return [(name, share) for _, name, share in sorted(off, reverse=True)][:NAMED]


def _written(name: str, at: datetime | None, command: str, now: datetime, limit: float, *, quiet: bool = False) -> Link:
    if at is None:
        return Link(name, "never written", f"`{command}` writes them.", None)
    late = (now - at).total_seconds() > limit and not quiet
    return Link(name, f"last written {ago(at, now)}", f"Is `{command}` running?" if late else "", not late)


def _metrics(beats: Heartbeats, now: datetime) -> Link:
    if beats.metrics is None:
        return Link("Metrics", "never written", "`sojourn analyze` works them out.", None)
    behind = beats.events is not None and (beats.events - beats.metrics).total_seconds() > BEHIND_SECONDS
    return Link(
        "Metrics", f"last written {ago(beats.metrics, now)}", "Behind the events." if behind else "", not behind
    )


def _history(gap: Row | None, now: datetime) -> Link:
    if gap is None:
        return Link("History", "complete", "", True)
    many = "Events" if gap["events"] is None else f"{count(gap['events'])} events"
    return Link(
        "History", "incomplete", f"{many} from before {instant(gap['since'], now)} are still being read.", False
    )


def _refused(rows: list[Row]) -> Link:
    if not rows:
        return Link("Refused rows", "none in the last day", "", True)
    reasons = "; ".join(f"{count(row['rows'])} of {row['source']}: {row['reason']}" for row in rows[:3])
    return Link(
        "Refused rows", count(sum(row["rows"] for row in rows)), f"{reasons}. They are in `rejected_records`.", False
    )


def untold(rows: Iterable[Row], now: datetime) -> list[str]:
    """The receivers of whose deliveries within a day the newest attempt failed."""
    newest: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        newest[row["receiver"]] = row
    since = now - timedelta(days=1)
    return sorted(name for name, row in newest.items() if row["outcome"] != "delivered" and row["at"] >= since)


def _told(rows: list[Row], now: datetime) -> Link:
    """Receivers whose newest attempt failed are behind; what was delivered at last is not."""
    if not rows:
        return Link("Deliveries", "none in the last day", "", None)
    failing = untold(rows, now)
    last = max((row["at"] for row in rows if row["outcome"] == "delivered"), default=None)
    state = "nothing delivered" if last is None else f"last delivered {ago(last, now)}"
    return Link("Deliveries", state, f"Not told: {listing(failing)}." if failing else "", not failing)


def rules(beats: Heartbeats, state: Evaluation, now: datetime) -> Link:
    """Whether rules are evaluated, and when an alert last changed."""
    changed = "no alert ever changed" if beats.alerts is None else f"an alert last changed {ago(beats.alerts, now)}"
    if state is Evaluation.RUNS:
        return Link("Rules", f"evaluated, {changed}", "", True)
    if not state.value:
        return Link("Rules", changed, "`sojourn alert` evaluates them, and has not told where it listens.", None)
    return Link("Rules", changed, f"{state.value[:1].upper()}{state.value[1:]}. Is `sojourn alert` running?", False)
