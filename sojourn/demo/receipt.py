"""What the demo's limit saved and cost: its receipt, by the lab, from the events of the surge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.dataset import rows_of
from lake.errors import SojournError
from lake.store import Lake
from sojourn.demo.measure import BEGINNINGS


@dataclass(frozen=True, slots=True)
class SurgeReceipt:
    """The receipt in words, and the quiet tenants' p99 of ages at first attempts (seconds) from the limit on, with it
    and without: a mean and the 95 % interval of a run that somebody might have seen."""

    reason: str
    quiet_with: float
    quiet_without: float
    quiet_without_low: float
    quiet_without_high: float


def told(root: Path, actions: Sequence[Mapping[str, Any]]) -> SurgeReceipt | None:
    """The receipt that the journal of the lake at ``root`` has already of the first limit in ``actions``."""
    if (limit := _limit(actions)) is None:
        return None
    rows = rows_of(Lake(root).ensure("actions"), where=[("action_id", "=", limit["action_id"])]).to_pylist()
    row = next((row for row in rows if (row["decision"], row["outcome"]) == ("receipt", "told")), None)
    if row is None:
        return None
    found = {name: float(value) for name, value in dict(row["inputs"]).items()}
    mean, half = found["others_without_mean"], found["others_without_half_width"]
    return SurgeReceipt(row["reason"], found["others"], mean, mean - half, mean + half)


def _limit(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The action that began to limit somebody."""
    return next((action for action in actions if action["decision"] in BEGINNINGS), None)


def of_surge(root: Path, actions: Sequence[Mapping[str, Any]], shed: int) -> SurgeReceipt | None:
    """The receipt of the first limit in ``actions`` (rows of the journal) in the lake at ``root``; ``shed`` messages
    were given up because of it. None where there was none, or nothing can be said of it."""
    from lab.receipt import worked_out  # only now: the demo's start must not wait for it

    if (throttle := _limit(actions)) is None:
        return None
    rows = rows_of(Lake(root).ensure("actions"), where=[("action_id", "=", throttle["action_id"])]).to_pylist()
    try:
        _, found = worked_out(root, rows, throttle["action_id"], shed=shed)
    except SojournError:
        return None
    without = found.others_without
    return SurgeReceipt(str(found), found.others, without.mean, without.low, without.high)
