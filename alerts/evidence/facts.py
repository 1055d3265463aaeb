"""What the views that rules last saw, and the limits in force, say of an alert's queue, in a few words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, timedelta
from typing import Any

import pyarrow as pa

from alerts.control.active_limit import ActiveLimit
from alerts.laws.drain import drain_interval
from alerts.rules.templates import humanize, humanize_duration

#: Tenants, and actions, that a page names one by one.
MOST_TENANTS, MOST_ACTIONS = 3, 3
#: How long (seconds) a view is looked into before a newer one is: finding one's way in it costs more than a look.
_HELD_FOR = 1.0
_KEYS = ("broker", "queue")
Rows = list[dict[str, Any]]


class Facts:
    """Answers from views held in memory. Belongs to one thread; ``held`` and ``active_limits`` may be
    asked from any."""

    def __init__(
        self,
        held: Callable[[str], pa.Table | None],
        active_limits: Callable[[], Iterable[ActiveLimit]],
        paused: Callable[[], bool],
        window_seconds: Callable[[], int],
    ) -> None:
        self._held, self._active_limits, self._paused, self._window = held, active_limits, paused, window_seconds
        self._indexed: dict[str, tuple[float, pa.Table, dict[tuple[str, ...], list[int]]]] = {}

    def of(self, labels: Mapping[str, str], ahead: timedelta) -> dict[str, str]:
        """The annotations ``who``, ``drain``, ``being_done`` of the alert with ``labels``, as far as they are known."""
        if "queue" not in labels:
            return {}
        tenants = self._tenants(labels)
        told = {
            "who": who(tenants, labels.get("tenant")),
            "drain": drain(tenants, self._window()),
            "being_done": self._being_done(labels, ahead),
        }
        return {name: text for name, text in told.items() if text}

    def oldest_age(self, labels: Mapping[str, str]) -> float | None:
        """For how long (seconds) the oldest message waits, as events tell."""
        ages = [row["oldest_age_seconds"] for row in self._tenants(labels) if row["oldest_age_seconds"] is not None]
        return max(ages, default=None)

    def _tenants(self, labels: Mapping[str, str]) -> Rows:
        rows = self._rows("tenant_backlog_now", labels)
        for name in ("subscriber", "tenant"):
            if name in labels:
                rows = [row for row in rows if row[name] == labels[name]]
        return rows

    def _rows(self, view: str, labels: Mapping[str, str]) -> Rows:
        known, now = self._indexed.get(view), time.monotonic()
        if known is None or now - known[0] > _HELD_FOR:
            table = self._held(view)
            if table is None:
                return []
            if known is None or known[1] is not table:
                places: dict[tuple[str, ...], list[int]] = {}
                for place, key in enumerate(zip(*(table[name].to_pylist() for name in _KEYS), strict=True)):
                    places.setdefault(key, []).append(place)
                known = now, table, places
            self._indexed[view] = known = (now, *known[1:])
        found = known[2].get(tuple(labels.get(name, "") for name in _KEYS), [])
        rows: Rows = known[1].take(pa.array(found, pa.int64())).to_pylist()
        return rows

    def _being_done(self, labels: Mapping[str, str], ahead: timedelta) -> str:
        tenant = labels.get("tenant")
        mine = [
            one
            for one in self._active_limits()
            if (one.key.target.broker, one.key.target.queue) == (labels.get("broker", ""), labels["queue"])
            and tenant in (None, one.key.target.tenant)
        ]
        if not mine:
            return "nothing: actions are paused by an operator" if self._paused() else "nothing: no action is in force"
        mine.sort(key=lambda one: (one.dry_run, one.limit.rate))
        told = [_action(one, ahead) for one in mine[:MOST_ACTIONS]]
        more = [f"and {len(mine) - MOST_ACTIONS} more"] if len(mine) > MOST_ACTIONS else []
        return "; ".join([*told, *more])


def who(tenants: Rows, tenant: str | None) -> str:
    """The tenants that wait, the largest backlog first: ``acme: 812 (81%), oldest 1m 3s, noisy``."""
    waiting = sorted((row for row in tenants if row["backlog"]), key=lambda row: (-row["backlog"], row["tenant"]))
    total = sum(row["backlog"] for row in waiting)
    told = []
    for row in waiting[:MOST_TENANTS]:
        share = "" if tenant is not None else f" ({100 * row['backlog'] / total:.0f}%)"
        age = row["oldest_age_seconds"]
        oldest = "" if age is None else f", oldest {humanize_duration(age)}"
        told.append(f"{row['tenant']}: {humanize(row['backlog'])}{share}{oldest}{', noisy' if row['noisy'] else ''}")
    left = len(waiting) - MOST_TENANTS
    return "; ".join([*told, *([f"and {left} more"] if left > 0 else [])])


def drain(tenants: Rows, window_seconds: int) -> str:
    """When what waits is gone at this rate, with the interval that the counts allow."""
    sums = {}
    for name in ("backlog", "completion_rate", "arrival_rate"):
        values = [row[name] for row in tenants]
        if not values or any(value is None for value in values):
            return ""
        sums[name] = math.fsum(values)
    if sums["backlog"] <= 0:
        return ""
    leave, arrive = sums["completion_rate"], sums["arrival_rate"]
    low, middle, high = drain_interval(sums["backlog"], leave, arrive, window_seconds)
    if math.isinf(middle):
        return f"not draining: {humanize(arrive)}/s arrive, {humanize(leave)}/s leave"
    latest = "perhaps never" if math.isinf(high) else humanize_duration(math.ceil(high))
    return f"in {humanize_duration(round(middle))} at this rate ({humanize_duration(math.floor(low))} to {latest})"


def _action(one: ActiveLimit, ahead: timedelta) -> str:
    until = (one.valid_until + ahead).astimezone(UTC)
    whom = one.key.target.tenant or "the queue"
    rate = f"{one.limit.rate:.4g}/s by {one.key.policy}"
    if one.proposed:
        return f"{whom} would be limited to {rate} (proposed: sojourn actions approve {one.action_id})"
    if one.dry_run:
        return f"{whom} would be limited to {rate} (dry run)"
    return f"{whom} is limited to {rate}, until {until:%H:%M:%S} UTC unless renewed"
