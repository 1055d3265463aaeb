"""One queue: its tenants, the loudest first, ready for a table that never grows beyond a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.services.keys import Row
from dashboard.services.overview import TRUSTED_COVERAGE, drained
from dashboard.services.say import UNKNOWN, age, count, percent, rate

#: The columns of the table, after the tenant's name.
COLUMNS = ("Backlog", "Share of backlog", "In flight", "Ready", "Oldest", "In → out", "Drained", "Limit")
#: The columns where only the broker's own readings tell of tenants.
READ_COLUMNS = ("Waiting", "In flight", "Delayed", "Oldest")


@dataclass(frozen=True, slots=True)
class TenantLine:
    """One tenant in the table, or the sum of all that are not shown."""

    tenant: str
    noisy: bool
    backlog: str
    share: float | None
    in_flight: str
    ready: str
    oldest: str
    flow: str
    drained: str
    limit: str

    @property
    def share_text(self) -> str:
        """The tenant's part of the queue's backlog."""
        return percent(self.share) if self.share is not None else "–"

    @property
    def cells(self) -> tuple[str, ...]:
        """The line by :data:`COLUMNS`."""
        return (
            self.backlog,
            self.share_text,
            self.in_flight,
            self.ready,
            self.oldest,
            self.flow,
            self.drained,
            self.limit,
        )


def tenant_lines(
    tenants: Iterable[Row], total: Row | None, limits: Iterable[Row] = (), *, top: int, flows: bool = False
) -> tuple[TenantLine, ...]:
    """The ``top`` tenants: noisy first, then by backlog and in flight; then one line for the others, if any.

    ``tenants`` are rows of ``tenant_backlog_now``, at least the first ``top`` of them; ``total`` sums over all;
    ``flows``: what waits in the queue only passes through.
    """
    ranked = sorted(
        tenants, key=lambda row: (not row["noisy"], -(row["backlog"] or 0), -(row["in_flight"] or 0), row["tenant"])
    )[:top]
    held = {row["tenant"]: row for row in limits}
    lines = [_line(row, held.get(row["tenant"]) or held.get(None), flows=flows) for row in ranked]
    if total is not None and (total["tenants"] or 0) > len(ranked):
        lines.append(_others(ranked, total))
    return tuple(lines)


def _line(row: Row, limit: Row | None, *, flows: bool) -> TenantLine:
    return TenantLine(
        tenant=row["tenant"],
        noisy=bool(row["noisy"]),
        backlog=_backlog(row),
        share=row["share"],
        in_flight=count(row["in_flight"]),
        ready=count(row["ready"]),
        oldest=UNKNOWN if row["backlog"] is None else age(row["oldest_age_seconds"]),
        flow=f"{rate(row['arrival_rate'])} → {rate(row['completion_rate'])}",
        drained=drained(row, flows=flows),
        limit=rate(limit["rate"]) if limit else "–",
    )


def _backlog(row: Row) -> str:
    """The backlog of events, with what the broker's depth makes of it where events cover too little."""
    seen, coverage = count(row["backlog"]), row["coverage"]
    if coverage is None or coverage >= TRUSTED_COVERAGE or not row["backlog"]:
        return seen
    return f"{seen} (≈ {count(row['reconciled_backlog'])})"


def _others(shown: list[Row], total: Row) -> TenantLine:
    def rest(column: str) -> float:
        return max(0.0, (total[column] or 0) - sum(row[column] or 0 for row in shown))

    backlog = None if total["backlog"] is None else rest("backlog")
    return TenantLine(
        tenant=f"{count(total['tenants'] - len(shown))} other tenants",
        noisy=False,
        backlog=count(backlog),
        share=backlog / total["backlog"] if backlog is not None and total["backlog"] else None,
        in_flight=count(None if backlog is None else rest("in_flight")),
        ready=count(None if backlog is None else rest("ready")),
        oldest="–",
        flow=f"{rate(rest('arrival_rate'))} → {rate(rest('completion_rate'))}",
        drained="–",
        limit="–",
    )


def read_cells(share: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reading told of one tenant (:mod:`lake.shares`), by :data:`READ_COLUMNS`."""
    return (*(count(share[name]) for name in ("depth", "in_flight", "delayed")), age(share["oldest_age_seconds"]))
