"""A week of the lab's traffic under the shipped rules: who would have been paged, and whether anything was wrong.

Messages are simulated one by one: Poisson arrivals with the rhythm of a day, first come first served, so many servers
with exponential service. On a calm queue nothing is ever wrong; on the others it is at known times: a tenant sends
twelve times its share, consumers stand still for an hour (the lab's two scenarios), a bad batch is dead-lettered. What
becomes of them is put into a lake by the minute, and what `sojourn rules backtest` does runs over it.

``python -m benchmarks.alerts_parts.week`` writes what it found to ``alerts/rules/week.json``, from which `make docs`
makes the table in docs/rules.md.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alerts.backtest.run import Backtest, backtest
from alerts.rules.loader import BUILTIN, EARLY, load_rules
from benchmarks.figures import Figure
from lake.histogram import bucket_index
from lake.store import Lake, conform
from lake.tables import EVENT_TYPES, PARTIALS, QUEUE_SAMPLES

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)  # a Monday
DAYS, MINUTE = 7, 60
#: Between two evaluations: a ``for`` of less holds for one.
STEP = timedelta(minutes=10)
#: A page is true if it comes while something is wrong, or for so long after: what piled up must be worked off.
AFTERWARDS = timedelta(hours=2)
RESULT = BUILTIN.with_name("week.json")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a queue, from hour to hour of the week."""

    begins: float
    ends: float
    what: str  # noisy | outage | poison


@dataclass(frozen=True, slots=True)
class Simulated:
    """One queue: messages/s at noon, servers, seconds of work, tenants."""

    name: str
    rate: float
    servers: int
    work: float
    tenants: int
    troubles: tuple[Trouble, ...] = ()
    sampled_only: bool = False


QUEUES = (
    Simulated("orders", 0.6, 4, 2.0, 8),
    Simulated("mails", 0.2, 2, 3.0, 3),
    Simulated("video", 0.01, 12, 480.0, 3),  # jobs of minutes
    Simulated("reports", 0.0005, 1, 20.0, 1),  # one now and then
    Simulated("cache", 0.3, 3, 1.0, 1, sampled_only=True),
    Simulated("shared", 0.6, 4, 2.0, 8, (Trouble(38.0, 38.25, "noisy"), Trouble(110.0, 110.25, "noisy"))),
    Simulated("billing", 0.2, 3, 3.0, 3, (Trouble(61.0, 62.0, "outage"),)),
    Simulated("imports", 0.2, 2, 3.0, 3, (Trouble(86.0, 86.2, "poison"),)),
)


def measure(scale: float) -> Iterator[Figure]:
    """Pages a week, by severity, where nothing was wrong."""
    told = replay(max(1, round(DAYS * scale)))
    for severity in ("critical", "warning"):
        yield Figure(
            f"week_false_{severity}_pages",
            sum(one["false"] for one in told["pages"] if one["severity"] == severity),
            "pages",
        )
    yield Figure("week_seconds", told["seconds"], "s")


def replay(days: int) -> dict[str, Any]:
    """What the shipped rules would have paged in so many days."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder))
        lake.create()
        messages = fill(lake, days)
        end = BEGIN + timedelta(days=days)
        rules = [rule for rule in load_rules((), builtin=True) if rule.group != EARLY]  # of policies as nobody has here
        found = backtest(rules, lake.root, BEGIN + timedelta(hours=1), end, STEP, stale_after=timedelta(minutes=3))
    return {
        "days": days,
        "step_seconds": STEP.total_seconds(),
        "messages": messages,
        "seconds": round(time.monotonic() - began),
        "queues": {one.name: [trouble.what for trouble in one.troubles] for one in QUEUES},
        "pages": _pages(found),
        "not_run": sorted(one.rule.name for one in found.outcomes if one.skipped),
        "errors": sorted(f"{one.rule.name}: {one.error}" for one in found.outcomes if one.error),
    }


def fill(lake: Lake, days: int) -> int:
    """Put so many days of all queues into ``lake``; how many messages that were."""
    messages = 0
    for number, queue in enumerate(QUEUES):
        partials, samples, count = _lived(queue, days, np.random.default_rng(number))
        messages += count
        if partials:
            lake.append("partials", conform(pa.Table.from_pylist(partials), PARTIALS.schema))
        lake.append("queue_samples", conform(pa.Table.from_pylist(samples), QUEUE_SAMPLES.schema))
    return messages


def _pages(found: Backtest) -> list[dict[str, Any]]:
    troubles = {one.name: one.troubles for one in QUEUES}
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for outcome in found.outcomes:
        for episode in outcome.episodes:
            queue = episode.labels.get("queue", "")
            key = queue, outcome.rule.labels["severity"], outcome.rule.name
            counts[key]["true" if _is_true(troubles.get(queue, ()), episode.began) else "false"] += 1
    return [
        {"queue": queue, "severity": severity, "alert": alert, "true": count["true"], "false": count["false"]}
        for (queue, severity, alert), count in sorted(counts.items())
    ]


def _is_true(troubles: tuple[Trouble, ...], at: datetime) -> bool:
    return any(
        BEGIN + timedelta(hours=one.begins) <= at <= BEGIN + timedelta(hours=one.ends) + AFTERWARDS for one in troubles
    )


def _lived(
    queue: Simulated, days: int, rng: np.random.Generator
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The partials and samples of each minute, and how many messages there were."""
    at, tenant = _arrivals(queue, days, rng)
    begun, ended, dead = _served(queue, at, rng)
    horizon = days * 86_400
    minutes = horizon // MINUTE
    start = int(BEGIN.timestamp())
    rows: dict[tuple[int, int], dict[str, Any]] = {}

    def row(second: float, who: int) -> dict[str, Any]:
        place = int(second) // MINUTE
        found = rows.get((place, who))
        if found is None:
            bucket = BEGIN + timedelta(minutes=place)
            found = rows[place, who] = {
                "broker": "lab", "queue": queue.name, "subscriber": "", "tenant": f"tenant-{who}",
                "bucket_start": bucket, "bucket_seconds": MINUTE, "newest_occurred_at": bucket,
                **dict.fromkeys((*EVENT_TYPES, "started", "retries", "finished_unreceived"), 0),
                "cells": Counter(), "first_attempt": [], "completion": [], "processing": [],
            }  # fmt: skip
        found["newest_occurred_at"] = max(found["newest_occurred_at"], BEGIN + timedelta(seconds=second))
        return found

    for came, who, first, last, is_dead in zip(at, tenant, begun, ended, dead, strict=True):
        arrived = row(came, who)
        arrived["enqueued"] += 1
        arrived["cells"][start + int(came)] += 1
        if first < horizon:
            taken = row(first, who)
            taken["received"] += 1
            taken["started"] += 1
            taken["first_attempt"].append(first - came)
        if last < horizon:
            over = row(last, who)
            over["dead_lettered" if is_dead else "completed"] += 1
            over["cells"][start + int(came)] -= 1
            over["completion"].append(last - came)
            over["processing"].append(last - first)
    samples = _samples(queue, minutes, at, begun, ended)
    if queue.sampled_only:
        return [], samples, len(at)
    return [_partial(one) for one in rows.values()], samples, len(at)


def _arrivals(queue: Simulated, days: int, rng: np.random.Generator) -> tuple[list[float], list[int]]:
    """When messages come (seconds), with a third of the noon's rate at night, and whose they are."""
    horizon = days * 86_400
    peak = queue.rate * (12 if any(one.what == "noisy" for one in queue.troubles) else 1)
    at = np.sort(rng.uniform(0, horizon, rng.poisson(peak * horizon)))
    rhythm = 0.65 - 0.35 * np.cos(2 * np.pi * at / 86_400)
    wanted = queue.rate * rhythm
    noisy = np.zeros(len(at), bool)
    for trouble in queue.troubles:
        if trouble.what == "noisy":
            noisy |= (at >= trouble.begins * 3600) & (at < trouble.ends * 3600)
    # One tenant sends twelve times its share: of the whole queue's rate, 11 shares more.
    wanted = np.where(noisy, wanted * (1 + 11 / queue.tenants * 4), wanted)
    kept = rng.uniform(0, peak, len(at)) < wanted
    at, noisy = at[kept], noisy[kept]
    tenant = rng.integers(0, queue.tenants, len(at))
    extra = rng.uniform(0, 1, len(at)) < 1 - 1 / (1 + 11 / queue.tenants * 4)
    return at.tolist(), np.where(noisy & extra, 0, tenant).tolist()


def _served(queue: Simulated, at: list[float], rng: np.random.Generator) -> tuple[list[float], list[float], list[bool]]:
    """When each message is begun and ended, and whether it was dead-lettered."""
    free = [0.0] * queue.servers
    begun, ended, dead = [], [], []
    outages = [(one.begins * 3600, one.ends * 3600) for one in queue.troubles if one.what == "outage"]
    poison = [(one.begins * 3600, one.ends * 3600) for one in queue.troubles if one.what == "poison"]
    for came, work in zip(at, rng.exponential(queue.work, len(at)).tolist(), strict=True):
        first = max(came, heapq.heappop(free)) + 0.02
        for since, until in outages:
            first = until if since <= first < until else first
        begun.append(first)
        ended.append(first + work)
        dead.append(any(since <= came < until for since, until in poison))
        heapq.heappush(free, first + work)
    return begun, ended, dead


def _samples(
    queue: Simulated, minutes: int, at: list[float], begun: list[float], ended: list[float]
) -> list[dict[str, Any]]:
    """What a sampler reads at the end of each minute."""
    instants = (np.arange(minutes) + 1) * MINUTE
    came, taken, over = (np.searchsorted(np.sort(one), instants, side="right") for one in (at, begun, ended))
    rows = []
    for place in range(minutes):
        sampled = BEGIN + timedelta(minutes=place + 1)
        waiting = int(came[place] - taken[place])
        rows.append({
            "broker": "lab", "queue": queue.name, "source": "sampler", "sampled_at": sampled, "ingested_at": sampled,
            "ingest_date": sampled.date(), "depth": waiting, "in_flight": int(taken[place] - over[place]),
            "consumers": queue.servers, "acked_total": int(over[place]), "in_flight_limit": 10 * queue.servers,
        })  # fmt: skip
    known = {*QUEUE_SAMPLES.schema.names}
    return [{name: value for name, value in row.items() if name in known} for row in rows]


def _partial(row: dict[str, Any]) -> dict[str, Any]:
    cells = [{"second": second, "net": net} for second, net in sorted(row.pop("cells").items()) if net]
    for kind, name in (
        ("first_attempt", "first_attempt_age"),
        ("completion", "completion_age"),
        ("processing", "processing"),
    ):
        seconds = row.pop(kind)
        if seconds:
            histogram = Counter(bucket_index(max(0.0, one)) for one in seconds)
            row |= {
                f"{name}_count": len(seconds),
                f"{name}_sum": float(sum(seconds)),
                f"{name}_max": max(seconds),
                f"{name}_histogram": [{"index": index, "count": count} for index, count in sorted(histogram.items())],
            }
            if name != "processing":
                row[f"{name}_skewed"] = 0
    return {**row, "backlog_cells": cells}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--output", type=Path, default=RESULT)
    chosen = parser.parse_args()
    chosen.output.write_text(json.dumps(replay(chosen.days), indent=1) + "\n", encoding="utf-8")
