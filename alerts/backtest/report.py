"""A backtest as people and programs read it: a table, CSV of every firing, JSON of everything."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from statistics import median
from typing import Any

from alerts.backtest.plot import strip
from alerts.backtest.run import Backtest, Episode, Outcome
from alerts.durations import format_duration

_HEAD = ("alert", "severity", "pages", "a week", "alerts", "flaps", "firing", "longest", "before DLQ", "when")


def table(found: Backtest) -> str:
    """A line for each rule that fired or failed, most pages first; the others are counted."""
    ran = [one for one in found.outcomes if one.skipped is None]
    told = sorted(
        (one for one in ran if one.episodes or one.error), key=lambda one: (-len(one.episodes), one.rule.name)
    )
    rows = [_HEAD, *(_row(found, one) for one in told)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    lines = [
        f"{found.begin:%Y-%m-%d %H:%M:%S} to {found.end:%Y-%m-%d %H:%M:%S} UTC: {found.instants:,} instants, one each "
        f"{format_duration(found.step)}" + (f", {found.stale:,} of them without fresh data" if found.stale else "")
    ]
    for row in rows:
        cells = [
            cell.ljust(width) if place < 2 or place == len(row) - 1 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    quiet = len(ran) - len(told)
    lines.append(f"{quiet} other rules would not have fired")
    lines += [f"not run: {one.rule.name}: {one.skipped}" for one in found.outcomes if one.skipped is not None]
    return "\n".join(lines)


def _row(found: Backtest, outcome: Outcome) -> tuple[str, ...]:
    lasted = [episode.lasted(found.end) for episode in outcome.episodes]
    return (
        outcome.rule.name,
        outcome.rule.labels.get("severity", ""),
        str(len(outcome.episodes)),
        f"{found.pages_a_week(outcome):.3g}",
        str(len({episode.fingerprint for episode in outcome.episodes})),
        str(_flaps(outcome)),
        _duration(sum(lasted, timedelta(0))),
        _duration(max(lasted, default=timedelta(0))),
        _lead(found, outcome),
        f"{outcome.errors} errors: {outcome.error}" if outcome.error else f"│{strip(found, outcome)}│",
    )


def _lead(found: Backtest, outcome: Outcome) -> str:
    """How often of all times it fired before messages were dead-lettered, and how early, the median."""
    if not found.dead_letters:
        return ""
    leads = found.leads(outcome)
    early = f" {_duration(timedelta(seconds=median(one.total_seconds() for one in leads)))}" if leads else ""
    return f"{len(leads)}/{len(found.dead_letters)}{early}"


def _flaps(outcome: Outcome) -> int:
    return sum(episode.flap for episode in outcome.episodes)


def _duration(length: timedelta) -> str:
    return format_duration(timedelta(seconds=round(length.total_seconds())))


def as_csv(found: Backtest) -> str:
    """Every firing, oldest first; instants are ISO 8601 in UTC, durations seconds, labels JSON."""
    text = io.StringIO()
    columns = list(_episode(found, None))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for episode in _episodes(found):
        row = _episode(found, episode)
        writer.writerow({**row, "labels": json.dumps(row["labels"], sort_keys=True)})
    return text.getvalue()


def as_json(found: Backtest) -> str:
    """Everything: the time, each rule with its figures, each firing."""
    rules = [
        {
            "group": one.rule.group,
            "alert": one.rule.name,
            "severity": one.rule.labels.get("severity"),
            "pages": len(one.episodes),
            "pages_a_week": found.pages_a_week(one),
            "alerts": len({episode.fingerprint for episode in one.episodes}),
            "pending": one.pending,
            "flaps": _flaps(one),
            "seconds_before_dead_letters": [lead.total_seconds() for lead in found.leads(one)],
            "firing_seconds": sum(episode.lasted(found.end).total_seconds() for episode in one.episodes),
            "errors": one.errors,
            "error": one.error,
            "not_run": one.skipped,
        }
        for one in found.outcomes
    ]
    told = {
        "from": found.begin.isoformat(),
        "to": found.end.isoformat(),
        "step_seconds": found.step.total_seconds(),
        "instants": found.instants,
        "stale_instants": found.stale,
        "dead_letters": [
            {"at": one.at.isoformat(), "broker": one.broker, "queue": one.queue} for one in found.dead_letters
        ],
        "rules": rules,
        "firings": [_episode(found, episode) for episode in _episodes(found)],
    }
    return json.dumps(told, indent=2, sort_keys=False) + "\n"


def _episodes(found: Backtest) -> list[Episode]:
    every = [episode for outcome in found.outcomes for episode in outcome.episodes]
    return sorted(every, key=lambda one: (one.began, one.rule.key, one.fingerprint))


def _episode(found: Backtest, episode: Episode | None) -> dict[str, Any]:
    """The columns of one firing; of None their names."""
    one = episode
    return {
        "group": one and one.rule.group,
        "alert": one and one.rule.name,
        "severity": one and one.labels.get("severity"),
        "fired_at": one and one.began.isoformat(),
        "resolved_at": one.over.isoformat() if one and one.over else None,
        "seconds": one and one.lasted(found.end).total_seconds(),
        "flap": one and one.flap,
        "peak": one and one.peak,
        "fingerprint": one and one.fingerprint,
        "labels": dict(one.labels) if one else None,
    }
