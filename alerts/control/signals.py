"""What laws of their own are judged by, added to what is observed for all; measured only where such a law is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

from alerts.control.active_limit import Target
from alerts.laws.limits import Terms
from alerts.laws.observation import Observation

Row = dict[str, Any]
#: The targets, by name, that a row is of.
Whose = Callable[[Row], tuple[str, ...]]
#: What laws of their own are judged by, beside what is observed for all: fields of an observation.
SIGNALS = {
    "deliveries": ("attempts", "failures", "attempt_rate"),
    "work": ("processing_seconds", "prefetch", "in_work"),
    "publishing": ("publishes", "publish_seconds", "publish_errors", "publishes_probed"),
}
#: The queue under which RabbitMQ's probe is sampled (:mod:`collectors.rabbitmq.probe`).
PROBE = "sojourn.probe"
#: The probe's newest sample, and the newest report of an application, is no older than this (seconds), or nothing is
#: known of publishing.
PROBE_STALE, REPORT_STALE = 15.0, 5.0


def signals_of(terms: Iterable[Terms]) -> dict[str, float]:
    """What the laws of their own must have measured, each over the longest window that one of them looks at."""
    found: dict[str, float] = {}
    for one in terms:
        if one.own is not None and one.own.signal:
            found[one.own.signal] = max(found.get(one.own.signal, 0.0), one.own.window_seconds)
    return found


def with_deliveries(
    observations: Mapping[Target, Observation], rows: Iterable[Row], of: Whose, recent_seconds: int
) -> dict[Target, Observation]:
    """What ended of each target's attempts; who had none has none, not an unknown number."""
    sums: dict[Target, tuple[float, float, float]] = {}
    for row in rows:
        for name in of(row):
            one = Target(row["broker"], row["queue"], name)
            ended, failed, recent = sums.get(one, (0.0, 0.0, 0.0))
            # Whoever dead-letters without telling of a failed attempt has had one all the same.
            failures = max(row["failed"] or 0.0, row["dead_lettered"] or 0.0)
            sums[one] = (
                ended + (row["completed"] or 0.0) + failures,
                failed + failures,
                recent + (row["recent"] or 0.0),
            )
    found = {}
    for target, seen in observations.items():
        attempts, failed, recent = sums.get(target, (0.0, 0.0, 0.0))
        found[target] = replace(seen, attempts=attempts, failures=failed, attempt_rate=recent / recent_seconds)
    return found


def with_work(
    observations: Mapping[Target, Observation], work: Iterable[Row], bounds: Iterable[Row], of: Whose
) -> dict[Target, Observation]:
    """The longest that work takes at any subscriber, the most that any of them has in hand, and may have."""
    found = dict(observations)
    of_queue = {(row["broker"], row["queue"]): row["prefetch"] for row in bounds}
    for row in work:
        for name in of(row):
            target = Target(row["broker"], row["queue"], name)
            bound = row["bound"] if row["bound"] is not None else of_queue.get((target.broker, target.queue))
            if target in found:
                before = found[target]
                found[target] = replace(
                    before,
                    processing_seconds=_most(before.processing_seconds, row["seconds"]),
                    prefetch=_most(before.prefetch, bound),
                    in_work=_most(before.in_work, row["in_work"]),
                )
    return found


def _most(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def with_publishing(
    observations: Mapping[Target, Observation], rows: Sequence[Row], now: datetime, seconds: float
) -> dict[Target, Observation]:
    """What applications told in the last ``seconds`` of their publishes to each target's queue; where they tell none,
    what the broker's probe did; where neither told anything lately, nothing is known."""
    by_queue: dict[tuple[str, str], list[Row]] = {}
    by_broker: dict[str, list[Row]] = {}
    for row in rows:
        if row["publishes"] is not None:
            by_queue.setdefault((row["broker"], row["queue"]), []).append(row)
        elif row["state"] is not None:
            by_broker.setdefault(row["broker"], []).append(row)
    told = {place: _told(mine) for place, own in by_queue.items() if (mine := _lately(own, now, seconds, REPORT_STALE))}
    probes = {broker: _lately(own, now, seconds, PROBE_STALE) for broker, own in by_broker.items()}
    probed = {broker: _probed(mine) for broker, mine in probes.items() if mine}
    found = dict(observations)
    for target, seen in observations.items():
        known = told.get((target.broker, target.queue)) or probed.get(target.broker)
        if known is not None:
            found[target] = replace(
                seen,
                publishes=known.count,
                publish_seconds=known.seconds,
                publish_errors=known.errors,
                publishes_probed=known.probed,
            )
    return found


@dataclass(frozen=True, slots=True)
class _Published:
    """So many publishes, their median (seconds; None: none was confirmed) and the part of them that failed."""

    count: float
    seconds: float | None
    errors: float
    probed: bool


def _lately(rows: Sequence[Row], now: datetime, seconds: float, stale: float) -> list[Row]:
    """Those of the ``seconds`` before the newest; none where that is of no use any more, or from the future."""
    newest = max(row["sampled_at"] for row in rows)
    if not -stale <= (now - newest).total_seconds() <= stale:
        return []
    return [row for row in rows if (newest - row["sampled_at"]).total_seconds() < seconds]


def _told(rows: Sequence[Row]) -> _Published:
    """What applications' reports come to: the median is that of their medians, each as often as it had publishes."""
    publishes, errors = (float(sum(row[name] for row in rows)) for name in ("publishes", "errors"))
    took = sorted((row["latency"], row["publishes"] - row["errors"]) for row in rows if row["latency"] is not None)
    half, seen, middle = sum(weight for _, weight in took) / 2, 0.0, None
    for latency, weight in took:
        middle, seen = latency, seen + weight
        if seen >= half:
            break
    return _Published(publishes, middle, errors / publishes if publishes else 0.0, False)


def _probed(rows: Sequence[Row]) -> _Published:
    """What a probe's samples come to, each of them one publish."""
    took = [row["latency"] for row in rows if row["latency"] is not None]
    failed = sum(row["state"] in ("blocked", "unconfirmed") for row in rows)
    return _Published(float(len(rows)), median(took) if took else None, failed / len(rows), True)
