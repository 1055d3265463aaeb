"""Every way to run a scenario or an incident beside doing nothing, as programs read it: for the dashboard's page Lab.

With the figures of :mod:`lab.compare` comes the course of each way's first run: the oldest age of the quiet tenants,
and the backlog.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from alerts.control.settings import PolicySettings
from lab.compare import Compared, compare
from lab.incident import Incident, Wanted, read
from lab.loop import Loop
from lab.replay import ranked, ways
from lab.replay import scenario as of_incident
from lab.run import Result, Told, result, telling, watched
from lab.scenario import Scenario, Variant, load, names
from lab.stats import Estimate, quantile
from lake.definitions import Definitions
from lake.errors import UserError

#: The points that a course has at most.
POINTS = 240


def listed() -> list[dict[str, str]]:
    """The scenarios that come with the lab, by name, each with its title."""
    return [{"name": name, "title": load(name).title} for name in names()]


def of_scenario(name_or_path: str, *, seeds: int, told: Told) -> dict[str, Any]:
    """One scenario, in its own ways. Raises UserError."""
    built = load(name_or_path)
    return _shown(built, seeds, told) | {"title": built.title, "happened": None, "messages": None}


def of_lake(
    root: Path,
    since: datetime,
    until: datetime,
    policies: Mapping[str, PolicySettings],
    *,
    place: Wanted,
    seeds: int,
    most: int | None,
    told: Told,
) -> dict[str, Any]:
    """What the lake has of a time at ``place``, every way; of ``most`` messages at the most. Raises UserError."""
    incident = read(root, since, until, place)
    messages = len(incident.arrivals)
    if most is not None and messages > most:
        raise UserError(f"{messages:,} messages came in that time, more than {most:,}", "choose less time")
    built = of_incident(incident, Definitions.load(root), ways(policies))
    found = _shown(built, seeds, told)
    return found | {"title": built.title, "happened": _happened(incident, built, found), "messages": messages}


def _happened(incident: Incident, built: Scenario, found: Mapping[str, Any]) -> dict[str, float | None]:
    """What the events themselves say, and what was finished ÷ the same by the simulator that does nothing."""
    noisy = set(found["noisy"])
    ages: dict[bool, list[float]] = {True: [], False: []}
    for name, those in incident.ages.items():
        ages[name in noisy] += those
    nothing = next(one for one in found["ways"] if one["name"] == built.variants[0].name)
    return {
        "quiet_p99": _number(quantile(ages[False], 0.99)),
        "noisy_p99": _number(quantile(ages[True], 0.99)),
        "completed": incident.done / max(1.0, nothing["done"]),
    }


def _shown(built: Scenario, seeds: int, told: Told) -> dict[str, Any]:
    courses: dict[str, dict[str, list[float]]] = {}

    def run(scenario: Scenario, seed: int, variant: Variant) -> Result:
        played, queue, loop = watched(scenario, seed, variant)
        courses.setdefault(variant.name, course(loop))
        return result(played, queue, loop)

    found = compare(built, range(seeds), telling(run, seeds * len(built.variants), told))
    tolerance = built.service_mean
    return {
        "seeds": seeds,
        "target_seconds": built.target,
        "measured": [_number(at) for at in built.measure],
        "noisy": sorted(one.name for one in built.tenants if one.suspect),
        "ways": [_way(one, tolerance, courses[one.variant]) for one in ranked(found, tolerance)],
        "nothing": built.variants[0].name,
    }


def _way(one: Compared, tolerance: float, drawn: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        "name": one.variant,
        "quiet_p99": _estimate(one.quiet),
        "quiet_change": _estimate(one.quiet_change),
        "noisy_p99": _estimate(one.suspect),
        "completed": _estimate(one.throughput),
        "done": one.done,
        "limited": one.limited,
        "innocents": one.innocents,
        "worse": one.worse(tolerance),
        "course": drawn,
    }


def course(loop: Loop) -> dict[str, list[float]]:
    """What one run looked like: at (seconds), the quiet tenants' oldest age there (seconds), the backlog; the most of
    each stretch, at :data:`POINTS` instants at most."""
    looks = list(zip(loop.quiet_ages, loop.backlogs, strict=True))
    step = max(1, math.ceil(len(looks) / POINTS))
    pieces = [looks[place : place + step] for place in range(0, len(looks), step)]
    return {
        "at": [round(piece[-1][0][0], 3) for piece in pieces],
        "quiet_oldest": [round(max(age for (_, age), _ in piece), 3) for piece in pieces],
        "backlog": [max(backlog for _, (_, backlog) in piece) for piece in pieces],
    }


def _estimate(one: Estimate) -> dict[str, float | None]:
    """Null is what there is not; bounds of null, that one run has no interval."""
    return {"mean": _number(one.mean), "low": _number(one.low), "high": _number(one.high)}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
