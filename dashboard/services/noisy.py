"""Why a tenant is called noisy, value against threshold, in words for somebody who was woken by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.services.alerting import number_of
from dashboard.services.keys import Row
from dashboard.services.say import UNKNOWN, count, decimal, duration, messages, percent, rate
from lake.noisy import share_from_which


def when_it_fired(share: float | None, inputs: Mapping[str, Any]) -> str:
    """What the alert's own row said of the tenant: its ``share`` of the backlog, and the columns in ``inputs``."""
    told = [] if share is None else [f"it held {percent(share)} of the backlog"]
    waiting, in_flight = number_of(inputs, "backlog"), number_of(inputs, "in_flight")
    if waiting is not None:
        told.append(f"{messages(waiting)} of its own in the queue")
    if in_flight is not None:
        told.append(f"{count(in_flight)} in flight")
    sent, left = number_of(inputs, "arrival_rate"), number_of(inputs, "completion_rate")
    if sent is not None and left is not None:
        told.append(f"it sent {rate(sent)}, of which {rate(left)} were worked off")
    return "; ".join(told) or "it was so"


def now(row: Row, quiet_oldest: float | None, target: float) -> tuple[tuple[str, str], ...]:
    """How the tenant stands beside the others, by the row of :func:`dashboard.questions.noisy.beside_others`: (what,
    value against threshold). ``quiet_oldest`` and ``target`` in seconds: what the oldest message of quiet tenants has
    waited, and may wait."""
    if not row["known"]:
        return (("Now", "nothing of this tenant is in the queue any more"),)
    active = row["active_tenants"]
    bound = f"noisy is more than {percent(share_from_which(active))}, with {active:,} tenants in the backlog"
    others = row["others_ready"]
    return (
        ("Share of the work", f"{_part(row['work'], row['queue_work'], 'kept busy')}; {bound}"),
        ("Share of in flight", f"{_part(row['in_flight'], row['queue_in_flight'])}; the same, from 30 messages on"),
        ("Share of the backlog", _part(row["backlog"], row["queue_backlog"])),
        ("Who waits for it", _victims(others, quiet_oldest, target)),
    )


def _part(mine: float | None, of_all: float | None, what: str = "messages") -> str:
    if mine is None and of_all:
        mine = 0.0
    if mine is None or of_all is None:
        return UNKNOWN
    if not of_all:
        return "none of any"
    return f"{percent(mine / of_all)}: {decimal(mine)} of {decimal(of_all)} {what}"


def _victims(others: int | None, quiet_oldest: float | None, target: float) -> str:
    if others is None:
        return UNKNOWN
    if not others:
        return "nobody: no message of other tenants waits"
    age = "how long is " + UNKNOWN
    if quiet_oldest is not None:
        times = f"{decimal(quiet_oldest / target)} × the target of {duration(target)}" if target else "no target is set"
        age = f"the oldest of quiet tenants for {duration(quiet_oldest)}, {times}"
    return f"{messages(others)} of other tenants, {age}"
