"""What the lab found, ready to be shown: who did best, a table, and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.services.say import UNKNOWN, count, decimal, duration, percent

COLUMNS = ("Quiet tenants, p99", "Change", "Noisy tenants, p99", "Completed", "Limited", "Worse in")
HAPPENED = "as it happened"
Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run it: ``cells`` by :data:`COLUMNS`; ``state`` is how it compares with doing nothing."""

    name: str
    state: str  # nothing, better, worse, same, happened
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """One run of one way: at ``minutes``, the quiet tenants' oldest age there (seconds) and the backlog."""

    name: str
    minutes: tuple[float, ...]
    ages: tuple[float, ...]
    backlogs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """The p99 of one way with its interval, in seconds; noisy tenants' as well where there are any."""

    name: str
    quiet: float
    low: float
    high: float
    noisy: float | None


def rows(found: Found) -> tuple[Way, ...]:
    """The table: what happened where it is known, then each way, the best first."""
    ways = tuple(_way(one, found) for one in found["ways"])
    told = found.get("happened")
    if told is None:
        return ways
    cells = (_seconds(told["quiet_p99"]), "", _seconds(told["noisy_p99"]), percent(told["completed"]), "", "")
    return Way(HAPPENED, "happened", cells), *ways


def _way(one: Found, found: Found) -> Way:
    nothing = one["name"] == found["nothing"]
    change = one["quiet_change"]
    limited = f"{decimal(one['limited'])} a run" if one["limited"] else "–"
    if one["innocents"]:
        limited += f", {count(one['innocents'])} for nothing"
    cells = (
        _estimate(one["quiet_p99"]),
        "" if nothing else _estimate(change, signed=True),
        _estimate(one["noisy_p99"]),
        "100 %" if nothing else _share(one["completed"]),
        limited,
        ", ".join(one["worse"]) or ("" if nothing else "nothing"),
    )
    state = "nothing" if nothing else "worse" if one["worse"] else "better" if _high(change) < 0 else "same"
    return Way(one["name"], state, cells)


def best(found: Found) -> Found | None:
    """The way that helps most and harms in nothing; None where none is better than doing nothing."""
    for one in found["ways"]:
        if one["name"] != found["nothing"] and not one["worse"] and _high(one["quiet_change"]) < 0:
            way: Found = one
            return way
    return None


def headline(found: Found) -> str:
    """Who did best, and by how much; or that nobody did better than nothing."""
    nothing = next(one for one in found["ways"] if one["name"] == found["nothing"])
    first = best(found)
    before = nothing["quiet_p99"]["mean"]
    if first is None:
        return "No way is better than doing nothing"
    return (
        f"{first['name'][:1].upper()}{first['name'][1:]}: quiet tenants wait {_seconds(first['quiet_p99']['mean'])} "
        f"at p99 instead of {_seconds(before)}"
    )


def sentence(found: Found) -> str:
    """What was run, how often, and how far that can be believed."""
    said = f"{found['title']}: {count(found['messages'])} messages. " if found["messages"] is not None else ""
    noisy = found["noisy"]
    if noisy:
        more = f" and {len(noisy) - 3:,} more" if len(noisy) > 3 else ""
        said += f"Reported apart as noisy: {', '.join(noisy[:3])}{more}. "
    runs = found["seeds"]
    said += (
        f"Means and 95 % intervals over {runs} runs of each way; the same arrivals for all. Ages count from when "
        "producers had the messages, held time included."
        if runs > 1
        else "One run of each way: its differences may be chance. Choose more runs for intervals."
    )
    if found.get("happened") is not None:
        said += f" Where “{found['nothing']}” differs from “{HAPPENED}”, so do all below it from what would have been."
    return said


def courses(found: Found) -> tuple[Course, ...]:
    """The curves: doing nothing first, then the others, the best first."""
    ordered = sorted(found["ways"], key=lambda one: one["name"] != found["nothing"])
    return tuple(
        Course(
            one["name"],
            tuple(at / 60 for at in one["course"]["at"]),
            tuple(one["course"]["quiet_oldest"]),
            tuple(one["course"]["backlog"]),
        )
        for one in ordered
    )


def spreads(found: Found) -> tuple[Spread, ...]:
    """The p99 of each way that is known, the best first."""
    return tuple(_spread(one) for one in found["ways"] if one["quiet_p99"]["mean"] is not None)


def _spread(one: Found) -> Spread:
    quiet = one["quiet_p99"]
    mean = quiet["mean"]
    low, high = (mean if quiet[name] is None else quiet[name] for name in ("low", "high"))
    return Spread(one["name"], mean, low, high, one["noisy_p99"]["mean"])


def _high(one: Found) -> float:
    """The upper end of what is believed: of one run the figure itself."""
    bound = one["mean"] if one["high"] is None else one["high"]
    return math.inf if bound is None else float(bound)


def _estimate(one: Found, *, signed: bool = False) -> str:
    mean = one["mean"]
    if mean is None:
        return "–"
    say = _signed if signed else duration
    if one["low"] is None or one["high"] is None:
        return say(mean)
    return f"{say(mean)} ({say(one['low'])} to {say(one['high'])})"


def _signed(seconds: float) -> str:
    return f"+{duration(seconds)}" if seconds > 0 else duration(seconds)


def _share(one: Found) -> str:
    mean, low, high = one["mean"], one["low"], one["high"]
    if mean is None:
        return UNKNOWN
    if low is None or high is None or percent(low) == percent(high):
        return percent(mean)
    return f"{percent(mean)} ({percent(low)} to {percent(high)})"


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(value)


def csv_rows(found: Found) -> Sequence[tuple[str, ...]]:
    """The table as it is downloaded: the way, then :data:`COLUMNS`."""
    return [(one.name, *one.cells) for one in rows(found)]
