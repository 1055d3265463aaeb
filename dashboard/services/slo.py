"""Objectives: what is promised, how fast the budget for breaking it is spent, and how much of it is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alerts.objectives import SloEntry, lengths_of
from dashboard.services.keys import QueueKey, Row
from dashboard.services.say import UNKNOWN, count, decimal, duration, percent
from dashboard.services.series import Curve, Span


@dataclass(frozen=True, slots=True)
class Burn:
    """One queue, or tenant of it, under an objective; ``left`` is the part of the budget that is left, below 0 where
    more than all was spent. ``cells`` by :func:`columns`."""

    key: QueueKey
    tenant: str | None
    severity: str | None
    left: float | None
    cells: tuple[str, ...]


def promise(slo: SloEntry) -> str:
    """``99 % of first attempts within 30 s, for each queue, over 30 d``."""
    what = {"completion": "completions"}.get(slo.kind, f"{slo.kind.replace('_', ' ')}s")
    who = {"queue": "queue", "tenant": "tenant of a queue"}[slo.per]
    of = "".join(f", {name} {value}" for name, value in sorted(slo.match.items()))
    return (
        f"{slo.objective * 100:.10g} % of {what} within {duration(slo.within.total_seconds())}, for each {who}{of}, "
        f"over {duration(slo.period.total_seconds())}"
    )


def columns(slo: SloEntry) -> tuple[str, ...]:
    """The columns after whose they are."""
    *windows, period = lengths_of(slo)
    return (
        "Budget left",
        f"Late in {duration(period)}",
        *(f"Burn, {duration(length)}" for length in windows),
        "Spent in",
    )


def burns(slo: SloEntry, rows: Iterable[Row]) -> tuple[Burn, ...]:
    """Whom the objective is for, in the rows' order."""
    return tuple(_burn(slo, row) for row in rows)


def _burn(slo: SloEntry, row: Row) -> Burn:
    *windows, period = lengths_of(slo)
    spent = row[f"burn_{period}"]
    left = None if spent is None else 1 - spent
    late, attempts = row[f"late_{period}"], row[f"attempts_{period}"]
    return Burn(
        key=QueueKey.of(row),
        tenant=row.get("tenant") if slo.per == "tenant" else None,
        severity=row["severity"],
        left=left,
        cells=(
            UNKNOWN if left is None else "none" if left <= 0 else percent(left),
            f"{count(late)} of {count(attempts)}",
            *("–" if row[f"burn_{length}"] is None else f"{decimal(row[f'burn_{length}'])} ×" for length in windows),
            _lasts(slo, left, row[f"burn_{_an_hour(windows)}"]),
        ),
    )


def _an_hour(windows: Sequence[int]) -> int:
    """The window whose burn is taken for that of now: the shortest from an hour on, else the longest."""
    return next((length for length in windows if length >= 3600), windows[-1])


def _lasts(slo: SloEntry, left: float | None, burn: float | None) -> str:
    """How long what is left lasts at the burn of now, were traffic to stay as over the period."""
    if left is None or burn is None:
        return UNKNOWN
    if left <= 0:
        return "spent"
    return "not at this rate" if burn < 0.005 else duration(round(left * slo.period.total_seconds() / burn))


def headline(total: Row, names: Mapping[QueueKey, str], shown: Sequence[Burn]) -> str:
    """What the page says first: who burns too fast, else who has spent it, else that all keep what is promised."""
    if not total["them"]:
        return "Nothing was attempted that an objective could be about"
    fast = total["critical"] + total["warning"] + total["info"]
    if fast:
        first = name(shown[0], names) if shown and shown[0].severity else ""
        if fast == 1 and first:
            return f"{first} burns its budget too fast"
        return f"{count(fast)} of {count(total['them'])} burn their budget too fast"
    if total["spent"]:
        return f"{count(total['spent'])} of {count(total['them'])} have spent their budget, none burns too fast now"
    return "All keep what is promised"


def name(burn: Burn, names: Mapping[QueueKey, str]) -> str:
    """Whose budget it is, as a person calls them."""
    queue = names.get(burn.key, burn.key.full)
    return queue if burn.tenant is None else f"{burn.tenant} on {queue}"


def over_time(slo: SloEntry, span: Span, rows: Iterable[Row]) -> Curve:
    """The burn rate in each bin: the part that was late ÷ the part that may be; None where nothing was attempted."""
    found = {row["at"]: row for row in rows if row["attempts"]}
    return Curve(
        "burn rate",
        tuple(
            None
            if (row := found.get(second)) is None or second == span.start
            else row["late"] / row["attempts"] / slo.budget
            for second in span.seconds
        ),
    )
