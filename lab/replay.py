"""An incident of one's own, as the lake has it, run again under every order and policy, and who did best.

What came, how long each attempt at it took, and how many could be worked on at once are the events' own
(:mod:`lab.incident`). The first row is what happened, the second the same by the simulator, first in, first out: where
the two differ, so do all rows below from what would have happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from alerts.control.settings import PolicySettings
from lab.compare import Compared, compare
from lab.incident import Incident, Wanted, read
from lab.loop import Loop
from lab.queue import Queue
from lab.run import Told, simulate, telling, tells_nobody
from lab.scenario import Scenario, Variant
from lab.stats import quantile
from lab.table import aligned, said
from lab.traced import traced
from lake.definitions import Definitions


def scenario(incident: Incident, definitions: Definitions, ways: Sequence[Variant]) -> Scenario:
    """``incident`` as the lab runs it: the tenants that the view calls noisy in it are reported apart."""
    built = traced(incident, definitions, ways)
    queue = Queue(built, built.variants[0].servers, 0)
    loop = Loop(queue, built, judging=True)
    loop.start()
    queue.run()
    noisy = loop.alerts.fired if loop.alerts is not None else set()
    tenants = (replace(one, suspect=one.name in noisy, innocent=one.name not in noisy) for one in built.tenants)
    return replace(built, tenants=tuple(tenants))


def ranked(found: Iterable[Compared], tolerance: float) -> list[Compared]:
    """The best first: those that are worse than nothing in no way, by how long the quiet wait; then the others."""
    return sorted(found, key=lambda one: (bool(one.worse(tolerance)), one.quiet.mean))


def main(
    root: Path,
    since: datetime,
    until: datetime,
    policies: Mapping[str, PolicySettings],
    *,
    place: Wanted,
    seeds: int,
    width: int | None = None,
    told: Told = tells_nobody,
) -> str:
    """The table, the best first, in lines of at most ``width`` characters."""
    incident = read(root, since, until, place)
    built = scenario(incident, Definitions.load(root), ways(policies))
    found = compare(built, range(seeds), telling(simulate, seeds * len(built.variants), told))
    suspects = sorted(one.name for one in built.tenants if one.suspect)
    lines = [["", "", "quiet p99 s", "change", "noisy p99 s", "completed", "limited", "worse"]]
    quiet = [age for name, ages in incident.ages.items() if name not in suspects for age in ages]
    noisy = [age for name in suspects for age in incident.ages.get(name, ())]
    happened = f"{incident.done / max(1.0, found[0].done):.3g}"
    lines.append(["", "as it happened", said(quantile(quiet, 0.99)), "", said(quantile(noisy, 0.99)), happened, "", ""])
    for number, one in enumerate(ranked(found, built.service_mean), 1):
        first = one.variant == found[0].variant
        lines.append(
            [
                str(number),
                one.variant,
                said(one.quiet),
                "" if first else said(one.quiet_change),
                said(one.suspect),
                "1" if first else said(one.throughput),
                f"{one.limited:g}" if one.limited else "",
                ", ".join(one.worse(built.service_mean)),
            ]
        )
    apart = f"noisy: {', '.join(suspects[:5])}{' …' if len(suspects) > 5 else ''}" if suspects else "nobody noisy"
    title = f"{built.title}, {incident.seconds:.0f} s, {len(incident.arrivals)} messages; {apart}"
    note = f"Means and 95 % intervals (bootstrap) over {seeds} runs; service times drawn anew from each tenant's own."
    return f"{title}\n{note}\n\n{aligned(lines, width)}"


def ways(policies: Mapping[str, PolicySettings]) -> tuple[Variant, ...]:
    """Doing nothing, each order, entitlements, and each of ``policies``; servers are the incident's."""
    return (
        Variant("nothing (FIFO)", False, 1),
        Variant("fair order (SFQ)", False, 1, order="fair"),
        Variant("round robin (DRR)", False, 1, order="round_robin"),
        Variant("quiet first (SQS)", False, 1, order="quiet_first"),
        Variant("entitlements", False, 1, entitled=True),
        *(Variant(name, True, 1, policy=policy) for name, policy in policies.items()),
    )
