"""Runs scenarios: ``simulate`` one seed of one variant, ``run`` all of them, ``main`` for the command line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from lab.loop import Loop
from lab.order import HEED_THE_NOISY
from lab.queue import Account, Queue, gc_paused
from lab.scenario import Scenario, Variant, load, resampled
from lab.shipped import Decision
from lab.stats import Estimate, estimate, jain, quantile
from lab.table import aligned
from lake.errors import UserError


@dataclass(frozen=True, slots=True)
class Result:
    """What one run showed. Ages in seconds, NaN where there is nothing to tell.

    ``late`` is the part of the measured time in which the quiet tenants' oldest age was above the target, ``recovered``
    how long the first such spell took to end; ``drained`` how long after the outage the backlog took to be as small as
    before it. ``done`` messages were completed by the end of the measured time, ``limited`` tenants had a limit,
    ``innocents`` of them for nothing. ``completions`` are the same messages by second, ``demand`` the seconds in which
    there was more to do (:class:`lab.loop.Loop`). ``fairness`` is Jain's index of the parts of their messages that
    tenants got completed.
    """

    quiet_p50: float
    quiet_p99: float
    quiet_total_p99: float
    suspect_p99: float
    suspect_total_p99: float
    completed: int
    shed: int
    late: float
    recovered: float
    drained: float
    fairness: float
    done: int
    innocents: int
    limited: int
    decisions: tuple[Decision, ...]
    completions: Mapping[int, int]
    demand: frozenset[int]


@dataclass(frozen=True, slots=True)
class Row:
    """One variant over all seeds, figure by figure."""

    variant: str
    figures: dict[str, Estimate]


#: Figure → what it is called in a table.
FIGURES = {
    "quiet_p50": "quiet p50 s",
    "quiet_p99": "quiet p99 s",
    "quiet_total_p99": "quiet p99 s, held time included",
    "suspect_p99": "noisy p99 s",
    "suspect_total_p99": "noisy p99 s, held time included",
    "completed": "completed",
    "shed": "shed",
    "late": "time beyond target",
    "recovered": "recovered after s",
    "drained": "drained after s",
    "fairness": "Jain",
    "innocents": "limited for nothing",
}


#: Hears of each run that has ended: how many have, of how many, and of which way it was.
Told = Callable[[int, int, str], None]
#: One run of a variant.
Run = Callable[[Scenario, int, Variant], Result]


def tells_nobody(ended: int, runs: int, way: str) -> None:
    """Nobody waits."""


def telling(run: Run, runs: int, told: Told) -> Run:
    """``run``, of which ``told`` hears each time that it has ended, ``runs`` times in all."""
    ended = count(1)

    def heard(scenario: Scenario, seed: int, variant: Variant) -> Result:
        found = run(scenario, seed, variant)
        told(next(ended), runs, variant.name)
        return found

    return heard


def simulate(scenario: Scenario, seed: int, variant: Variant | None = None) -> Result:
    """One run of ``variant`` (default: the scenario's last). The same seed brings the same messages to each variant."""
    with gc_paused():
        scenario, queue, loop = watched(scenario, seed, variant)
        found = result(scenario, queue, loop)
        queue.forget()
    return found


def watched(scenario: Scenario, seed: int, variant: Variant | None = None) -> tuple[Scenario, Queue, Loop]:
    """The same run itself, ended, for who shows what happened in it; with the scenario as it was run."""
    variant = variant or scenario.variants[-1]
    if variant.policy is not None:
        scenario = replace(scenario, policy=variant.policy)
    scenario = resampled(scenario, seed)
    queue = Queue(scenario, variant.servers, seed, order=variant.order)
    judging = variant.order in HEED_THE_NOISY
    loop = Loop(queue, scenario, variant.controlled, variant.entitled, variant.glances, judging=judging)
    loop.start()
    queue.run()
    return scenario, queue, loop


def run(name_or_path: str | Path, seeds: Iterable[int], told: Told = tells_nobody) -> list[Row]:
    """Every variant of a scenario, as means with 95 % intervals over ``seeds``. Raises UserError."""
    scenario, seeds = load(name_or_path), list(seeds)
    if not seeds:
        raise UserError("a simulation needs at least one seed", "give --seeds 5")
    rows = []
    one = telling(simulate, len(seeds) * len(scenario.variants), told)
    for variant in scenario.variants:
        results = [one(scenario, seed, variant) for seed in seeds]
        rows.append(Row(variant.name, {name: _estimate([getattr(r, name) for r in results]) for name in FIGURES}))
    return rows


def main(scenario: str, *, seeds: int, width: int | None = None, told: Told = tells_nobody) -> str:
    """The table of :func:`run` over seeds 0 … ``seeds`` − 1, as text of at most ``width`` characters a line."""
    rows = run(scenario, range(seeds), told)
    shown = [name for name in FIGURES if any(not math.isnan(row.figures[name].mean) for row in rows)]
    shown = [name for name in shown if name not in ("shed", "innocents") or any(row.figures[name].mean for row in rows)]
    lines = [["", *(FIGURES[name] for name in shown)]]
    lines += [[row.variant, *(str(row.figures[name]) for name in shown)] for row in rows]
    over = f"{seeds} seed{'s' if seeds != 1 else ''}"
    note = f"{load(scenario).title}\nMeans and their 95 % intervals (bootstrap) over {over}.\n\n"
    return note + aligned(lines, width)


def result(scenario: Scenario, queue: Queue, loop: Loop) -> Result:
    """What a run showed that has ended."""
    start, end = scenario.measure
    done_by = end if scenario.done_by is None else scenario.done_by
    suspects = {tenant.name for tenant in scenario.tenants if tenant.suspect}
    innocent = {tenant.name for tenant in scenario.tenants if tenant.innocent}
    quiet, suspect = _Ages(), _Ages()
    for name, account in queue.accounts.items():
        (suspect if name in suspects else quiet).take(account, start, end)
    accounts = queue.accounts.values()
    decisions = loop.decisions
    completions: Counter[int] = Counter()
    for account in accounts:
        completions.update({second: n for second, n in account.completions.items() if second < done_by})
    limited = loop.limited
    return Result(
        quiet_p50=quantile(quiet.queued, 0.50),
        quiet_p99=quantile(quiet.queued, 0.99),
        quiet_total_p99=quantile(quiet.total, 0.99),
        suspect_p99=quantile(suspect.queued, 0.99),
        suspect_total_p99=quantile(suspect.total, 0.99),
        completed=sum(account.completed for account in accounts),
        shed=sum(account.shed for account in accounts),
        late=_late(scenario, loop) if suspects else math.nan,
        recovered=_recovered(scenario, loop) if suspects else math.nan,
        drained=_drained(scenario, loop),
        fairness=jain([account.completed / account.offered for account in accounts if account.offered]),
        done=completions.total(),
        limited=len(limited),
        innocents=len(limited & innocent),
        decisions=decisions,
        completions=completions,
        demand=frozenset(second for second in loop.demand if second < done_by),
    )


@dataclass(slots=True)
class _Ages:
    """Ages at first attempts, in the queue and with the time that producers held the messages (seconds)."""

    queued: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def take(self, account: Account, start: float, end: float) -> None:
        """Those of ``account`` that began between the two."""
        begun = [one for one in account.begun if start <= one.began_at < end]
        self.queued += [one.began_at - one.enqueued_at for one in begun]
        self.total += [one.began_at - one.offered_at for one in begun]


def _spells(scenario: Scenario, loop: Loop) -> list[tuple[float, bool]]:
    """The looks within the measured time: when, and whether the quiet tenants waited beyond the target."""
    start, end = scenario.measure
    return [(at, age > scenario.target) for at, age in loop.quiet_ages if start <= at < end]


def _late(scenario: Scenario, loop: Loop) -> float:
    looks = _spells(scenario, loop)
    return sum(late for _, late in looks) / len(looks) if looks else math.nan


def _recovered(scenario: Scenario, loop: Loop) -> float:
    """0 if never beyond the target; infinite if the first spell did not end within the measured time."""
    looks = _spells(scenario, loop)
    began = next((at for at, late in looks if late), None)
    if began is None:
        return 0.0
    return next((at - began for at, late in looks if at > began and not late), math.inf)


def _drained(scenario: Scenario, loop: Loop) -> float:
    """Until the backlog is as small as it was before the outage, on average; NaN without an outage."""
    if scenario.outage is None:
        return math.nan
    start, end = scenario.outage
    usual = [backlog for at, backlog in loop.backlogs if at < start]
    small = max(1.0, 2 * sum(usual) / max(1, len(usual)))
    return next((at - end for at, backlog in loop.backlogs if at > end and backlog <= small), math.inf)


def _estimate(values: Sequence[float]) -> Estimate:
    if any(not math.isfinite(value) for value in values):
        # A run that never recovered has no mean to add to: say so instead of averaging the others.
        worst = math.nan if any(math.isnan(value) for value in values) else math.inf
        return Estimate(worst, -math.inf, math.inf)
    return estimate(values)
