"""What laws of their own are judged by, added to what is observed for all; measured only where such a law is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
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
    "publishing": ("publishes", "publish_seconds", "publish_errors"),
}
#: The queue under which RabbitMQ's probe is sampled (:mod:`collectors.rabbitmq.probe`).
PROBE = "sojourn.probe"
#: The probe's newest sample is no older than this (seconds), or nothing is known of publishing.
PROBE_STALE = 15.0


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
    """What each broker's probe told in the last ``seconds``; where it told nothing lately, nothing is known."""
    found = dict(observations)
    for target, seen in observations.items():
        mine = [row for row in rows if row["broker"] == target.broker and row["state"] is not None]
        newest = max((row["sampled_at"] for row in mine), default=None)
        if newest is None or not -PROBE_STALE <= (now - newest).total_seconds() <= PROBE_STALE:
            continue
        mine = [row for row in mine if (newest - row["sampled_at"]).total_seconds() < seconds]
        took = [row["latency"] for row in mine if row["latency"] is not None]
        failed = sum(row["state"] in ("blocked", "unconfirmed") for row in mine)
        found[target] = replace(
            seen,
            publishes=float(len(mine)),
            publish_seconds=median(took) if took else None,
            publish_errors=failed / len(mine),
        )
    return found
