"""What an action saved whom and cost whom: its window's messages through the simulator, as they came and as they would.

With the action is what the events tell. Without it the limited tenant's messages come when its producers had them. No
event tells that: the tenant is taken to have gone on as it began, at the rate at which it sent when it was limited,
until all that came under the limit is sent, and what its producers gave up, where somebody counted it. All else – the
others' messages, how long each took, how many were worked on at once – is the same.

Intervals are for a run without the action that somebody might really have seen: as many messages would not have come
again, nor would each have taken as long.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.control.spans import BRIEF_SECONDS
from alerts.laws.blame import DEVIATIONS
from lab.incident import Incident, read
from lab.queue import Queue
from lab.scenario import Arrival, Scenario, Variant, resampled
from lab.stats import Estimate, prediction, quantile, short
from lab.traced import traced
from lake.dataset import rows_of
from lake.definitions import Definitions
from lake.errors import SojournError, UserError
from lake.store import Lake
from lake.tables import ACTIONS

#: What is run before an action and after it: the flood that it answers, and the way back (seconds).
BEFORE, AFTER = 60.0, 60.0
SEEDS = 10


@dataclass(frozen=True, slots=True)
class Action:
    """One limit that was in force, from its first row in the journal to its last; ``rate`` is what the tenant sent."""

    action_id: str
    rule: str
    policy: str
    actuator: str
    broker: str
    queue: str
    tenant: str
    since: datetime
    until: datetime
    rate: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """Seconds of 99th percentiles at first attempts, time held back included: what the ``saved`` tenants waited less,
    on average over them, and what the limited one waited more; all others' together, ``others`` with the action and
    ``others_without`` it."""

    tenant: str
    saved_tenants: float
    saved: Estimate
    cost: Estimate
    others: float
    others_without: Estimate

    def __str__(self) -> str:
        return (
            f"saved {self.saved_tenants:.0f} tenants {_told(self.saved)} of p99, cost {self.tenant} {_told(self.cost)}"
        )


def action(rows: Iterable[Mapping[str, Any]], action_id: str) -> Action:
    """The action of that name in the journal's ``rows``. UserError where there is none, or it has not ended."""
    applied = (row for row in rows if row["action_id"] == action_id and row["outcome"] == "applied")
    mine = sorted(applied, key=lambda row: row["at"])
    began = next((row for row in mine if row["after"] is not None), None)
    if began is None or began["tenant"] is None:
        raise UserError(f"no action {action_id!r} limited a tenant", "see `sojourn actions list`")
    ended = next((row for row in reversed(mine) if row["after"] is None and row["at"] > began["at"]), None)
    if ended is None:
        raise UserError(f"the action {action_id!r} has not ended", "ask again once it has, or revoke it")
    sent = [dict(row["inputs"]).get("arrival_rate", "") for row in mine]
    try:
        rate = float(next(text for text in sent if text))
    except (StopIteration, ValueError):
        raise UserError(f"the journal does not say what {began['tenant']!r} sent", "nothing can be compared") from None
    named = {name: began[name] for name in ("rule", "policy", "actuator", "broker", "queue", "tenant")}
    return Action(action_id=action_id, since=began["at"], until=ended["at"], rate=rate, **named)


def sent(trace: Sequence[Arrival], tenant: str, since: float, rate: float) -> float:
    """What ``tenant`` sent (messages/s) when it was limited at ``since``: ``rate``, as the journal has it, or what it
    sent in the last seconds, where that is more beyond chance. The journal's is a mean over seconds in which a flood
    that was limited early had not begun yet."""
    count = sum(arrival.tenant == tenant and since - BRIEF_SECONDS <= arrival.at < since for arrival in trace)
    expected = rate * BRIEF_SECONDS
    return count / BRIEF_SECONDS if count > expected + DEVIATIONS * math.sqrt(expected) else rate


def unheld(trace: Sequence[Arrival], tenant: str, since: float, until: float, rate: float) -> tuple[Arrival, ...]:
    """``trace`` with the instants at which producers of ``tenant`` had what came from ``since`` until ``until``, at
    ``rate``/s."""
    found, number = [], 0
    for arrival in trace:
        if arrival.tenant == tenant and since <= arrival.at < until:
            number += 1
            arrival = replace(arrival, offered=min(arrival.at, since + number / rate))
        found.append(arrival)
    return tuple(found)


def without(trace: Sequence[Arrival]) -> tuple[Arrival, ...]:
    """``trace`` as it would have come with nobody held back."""
    moved = (one if one.offered is None else replace(one, at=one.offered) for one in trace)
    return tuple(sorted(moved, key=lambda one: one.at))


def recounted(trace: Sequence[Arrival], seed: int) -> tuple[Arrival, ...]:
    """``trace`` with each message there as often as chance has it, once on average: as many would not come again.

    Poisson bootstrap: J. Hanley, B. MacGibbon, 2006.
    """
    rng = random.Random(seed)
    found: list[Arrival] = []
    for one in trace:
        left = rng.random()
        count, chance = 0, math.exp(-1.0)
        while left > chance:
            left -= chance
            count += 1
            chance /= count
        found += [one] * count
    return tuple(found)


def shed_ones(
    trace: Sequence[Arrival], one: Action, since: float, until: float, shed: int, seed: int
) -> tuple[Arrival, ...]:
    """``shed`` messages that producers of the tenant gave up, behind those that came, with work like those'."""
    mine = [arrival for arrival in trace if arrival.tenant == one.tenant and since <= arrival.at < until]
    works = [arrival.work for arrival in mine] or [arrival.work for arrival in trace]
    chance = random.Random(f"{seed}/shed")
    return tuple(
        Arrival(since + (len(mine) + number) / one.rate, one.tenant, chance.choice(works))
        for number in range(1, shed + 1)
    )


def compared(
    incident: Incident, definitions: Definitions, one: Action, since: float, seeds: Iterable[int], shed: int = 0
) -> Receipt:
    """The receipt of ``one``, which began ``since`` seconds into ``incident``; ``shed`` messages never came."""
    scenario = traced(incident, definitions, (Variant("as it came", False, 1),))
    one = replace(one, rate=sent(scenario.trace, one.tenant, since, one.rate))
    until = since + (one.until - one.since).total_seconds()
    scenario = replace(scenario, trace=unheld(scenario.trace, one.tenant, since, until, one.rate))
    savings, helped, costs, others = [], [], [], []
    ages = _waits(scenario, since, 0)
    with_it = _p99s(ages)
    for seed in seeds:
        drawn = resampled(scenario, seed)
        came = sorted(
            (*without(drawn.trace), *shed_ones(drawn.trace, one, since, until, shed, seed)), key=lambda it: it.at
        )
        drawn_ages = _waits(replace(drawn, trace=recounted(came, seed)), since, seed)
        without_it = _p99s(drawn_ages)
        others.append(_others(drawn_ages, one.tenant))
        less = {
            name: without_it[name] - wait for name, wait in with_it.items() if name != one.tenant and name in without_it
        }
        gained = [value for value in less.values() if value > scenario.service_mean]
        helped.append(float(len(gained)))
        savings.append(sum(gained) / len(gained) if gained else 0.0)
        costs.append(with_it.get(one.tenant, 0.0) - without_it.get(one.tenant, 0.0))
    return Receipt(
        one.tenant,
        sum(helped) / len(helped),
        prediction(savings),
        prediction(costs),
        _others(ages, one.tenant),
        prediction(others),
    )


def main(root: Path, action_id: str, now: datetime, *, seeds: int = SEEDS, keep: bool = True, shed: int = 0) -> str:
    """The receipt of an action that has ended, put into the journal once if ``keep``; with ``shed``, which producers
    alone know (:func:`worked_out`), another one. UserError."""
    lake = Lake(root)
    if not lake.exists("actions"):
        raise UserError(f"the lake at {root} has no journal", "name another with --lake")
    rows = rows_of(lake.ensure("actions"), where=[("action_id", "=", action_id)]).to_pylist()
    told = (row for row in rows if row["decision"] == "receipt" and row["outcome"] == "told")
    if there := next((row["reason"] for row in told if int(dict(row["inputs"]).get("shed", "0")) == shed), None):
        return str(there)
    one, found = worked_out(root, rows, action_id, seeds, shed)
    row = _row(one, found, now, shed)
    if keep:
        table = pa.Table.from_pylist([row], schema=ACTIONS.schema)
        lake.append("actions", table, app_id=row["idempotency_key"], version=1)
    return str(row["reason"])


def worked_out(
    root: Path, rows: Iterable[Mapping[str, Any]], action_id: str, seeds: int = SEEDS, shed: int = 0
) -> tuple[Action, Receipt]:
    """The receipt of an action that has ended, of whose journal these are the ``rows``. UserError.

    ``shed``: so many messages the limited tenant's producers gave up, where that is known; no event tells it.
    """
    one = action(rows, action_id)
    begin, end = one.since - timedelta(seconds=BEFORE), one.until + timedelta(seconds=AFTER)
    incident = read(root, begin, end, (one.broker, one.queue, None))
    return one, compared(incident, Definitions.load(root), one, BEFORE, range(seeds), shed)


def _row(one: Action, found: Receipt, now: datetime, shed: int) -> dict[str, Any]:
    gave_up = f", with {shed} messages that its producers gave up" if shed else ""
    names = ("action_id", "rule", "policy", "actuator", "broker", "queue", "tenant")
    return {
        "at": now,
        "idempotency_key": f"sojourn-receipt-{one.action_id}" + (f"-{shed}" if shed else ""),
        **{name: getattr(one, name) for name in names},
        "decision": "receipt",
        "dry_run": False,
        "before": None,
        "after": None,
        "valid_until": None,
        "inputs": [*_figures(found).items(), *([("shed", str(shed))] if shed else [])],
        "reason": f"{found}{gave_up}",
        "outcome": "told",
    }


_PARTS = ("mean", "half_width")


def _figures(found: Receipt) -> dict[str, str]:
    estimates = {"saved": found.saved, "cost": found.cost, "others_without": found.others_without}
    inputs = {f"{name}_{part}": f"{getattr(value, part):.6g}" for name, value in estimates.items() for part in _PARTS}
    return inputs | {"saved_tenants": f"{found.saved_tenants:.6g}", "others": f"{found.others:.6g}"}


def _waits(scenario: Scenario, since: float, seed: int) -> dict[str, list[float]]:
    """Each tenant's ages at first attempts, of what its producers had from ``since`` on."""
    queue = Queue(scenario, scenario.variants[0].servers, seed)
    queue.run()
    waits = {
        name: [one.began_at - one.offered_at for one in account.begun if one.offered_at >= since]
        for name, account in queue.accounts.items()
    }
    return {name: ages for name, ages in waits.items() if ages}


def _p99s(waits: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: quantile(ages, 0.99) for name, ages in waits.items()}


def _others(waits: Mapping[str, list[float]], tenant: str) -> float:
    """All but the tenant's, together; 0 where there are none."""
    ages = [age for name, ages in waits.items() if name != tenant for age in ages]
    return quantile(ages, 0.99) if ages else 0.0


def _told(found: Estimate) -> str:
    return f"{short(found.mean)} s (95 %: {short(found.low)} to {short(found.high)} s)"


def print_it(root: Path, action_id: str) -> None:
    """The receipt as JSON: ``reason`` and ``inputs`` of its row in the journal."""
    rows = rows_of(Lake(root).ensure("actions"), where=[("action_id", "=", action_id)]).to_pylist()
    _, found = worked_out(root, rows, action_id)
    print(json.dumps({"reason": str(found), "inputs": _figures(found)}))


if __name__ == "__main__":
    try:
        print_it(Path(sys.argv[1]), sys.argv[2])
    except SojournError as error:
        sys.exit(str(error))
