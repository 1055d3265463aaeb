"""The demo's last word: one table for eyes, the same as JSON for programs, and a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.demo import scenario
from sojourn.demo.measure import RECOVERED_AGE, Balance, Moments, QuietAges, quantile
from sojourn.demo.receipt import SurgeReceipt

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the demo found out about itself."""

    moments: Moments
    ages: QuietAges
    webhook_delays: Sequence[float]
    freshness: Sequence[float]
    balance: Balance
    accused: frozenset[str]
    throttled: frozenset[str]
    unverified_webhooks: int
    shed: int
    restarts: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False
    dry_run: bool = False
    receipt: SurgeReceipt | None = None

    def since_surge(self, moment: float | None) -> float | None:
        """Seconds from the start of the surge."""
        return None if moment is None else moment - self.moments.surge

    @property
    def problems(self) -> list[str]:
        """What did not go as it must, in words; empty if all is well."""
        noisy, moments, found = scenario.NOISY, self.moments, []
        if not self.balance.exact:
            found.append("the message balance is not exact")
        for moment, what in (
            (moments.detected, f"{noisy} was not detected"),
            (moments.webhook, f"no signed webhook named {noisy}"),
            (moments.throttled, f"{noisy} was not throttled"),
            (moments.recovered, "the quiet tenants did not recover"),
        ):
            if moment is None and not (self.dry_run and what.endswith(("throttled", "recover"))):
                found.append(what)
        if others := sorted((self.throttled | self.accused) - {noisy}):
            found.append(f"also accused or throttled: {', '.join(others)}")
        if self.unverified_webhooks:
            found.append(f"{self.unverified_webhooks} webhooks were not signed well")
        return found

    def as_json(self) -> str:
        """The figures for programs; times are seconds, null is unknown."""
        moments = self.moments
        figures: dict[str, Any] = {
            "noisy_tenant": scenario.NOISY,
            "seconds_from_surge": {
                "detected": self.since_surge(moments.detected),
                "webhook": self.since_surge(moments.webhook),
                "throttled": self.since_surge(moments.throttled),
                "recovered": self.since_surge(moments.recovered),
                "resolved": self.since_surge(moments.resolved),
                "released": self.since_surge(moments.released),
                "surge_ended": self.since_surge(moments.surge_ends),
            },
            "quiet_p99_first_attempt_age_seconds": asdict(self.ages),
            "event_to_webhook_seconds": _spread(self.webhook_delays),
            "gold_freshness_seconds": _spread(self.freshness),
            "balance": {**asdict(self.balance), "backlog": self.balance.backlog, "exact": self.balance.exact},
            "accused": sorted(self.accused),
            "throttled": sorted(self.throttled),
            "shed": self.shed,
            "restarts": self.restarts,
            "interrupted": self.interrupted,
            "dry_run": self.dry_run,
            "receipt": None if self.receipt is None else asdict(self.receipt),
            "problems": self.problems,
        }
        return json.dumps(figures, indent=2) + "\n"

    def as_table(self) -> RenderableType:
        """The table for eyes."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, title=f"One surge of {scenario.NOISY}", title_justify="left")
        table.add_column("what")
        table.add_column("measured", justify="right")
        table.add_column("")
        for what, moment, note in self._moment_rows():
            table.add_row(what, _seconds(self.since_surge(moment)), note)
        table.add_section()
        table.add_row("quiet tenants' p99 age, before", _seconds(self.ages.before), "first attempts only")
        table.add_row("… during", _seconds(self.ages.during), "until it is over and they have recovered")
        table.add_row("… after", _seconds(self.ages.after), "")
        if (told := self.receipt) is not None:
            interval = f"95 %: {_seconds(told.quiet_without_low)} to {_seconds(told.quiet_without_high)}"
            table.add_row("… from the limit on, with it", _seconds(told.quiet_with), "the same messages by the lab")
            table.add_row("… from then on, without it", _seconds(told.quiet_without), interval)
        table.add_section()
        for what, values, note in (
            ("event → webhook", self.webhook_delays, f"{len(self.webhook_delays)} notifications"),
            ("gold freshness", self.freshness, "age of the newest metric, at any moment"),
        ):
            spread = _spread(values)
            table.add_row(f"{what}, p50 / p95", f"{_seconds(spread['p50'])} / {_seconds(spread['p95'])}", note)
        table.add_section()
        for row in self._balance_rows():
            table.add_row(*row)
        return table

    def _moment_rows(self) -> list[tuple[str, float | None, str]]:
        moments = self.moments
        named = f"named: {', '.join(sorted(self.accused)) or 'nobody'}"
        limited = f"limited: {', '.join(sorted(self.throttled)) or 'nobody'}; {self.shed:,} messages held back"
        ever = "was never above" if moments.recovered == moments.surge else "stays below"
        recovered = f"their p99 age {ever} {RECOVERED_AGE:g} s"
        return [
            ("surge → detected", moments.detected, named),
            ("surge → webhook received", moments.webhook, "signature verified by the receiver"),
            ("surge → throttled", moments.throttled, limited),
            ("surge → quiet tenants recovered", moments.recovered, recovered),
            ("surge → its own end", moments.surge_ends, ""),
            ("surge → alert resolved", moments.resolved, ""),
            ("surge → limit released", moments.released, ""),
        ]

    def _balance_rows(self) -> list[tuple[str, str, str]]:
        balance = self.balance
        total = f"{balance.completed:,} + {balance.dead_lettered:,} + {balance.backlog:,}"
        lost = abs(balance.published - balance.enqueued) + balance.rejected
        doubled = balance.duplicates + balance.finished_twice
        gold = f"{balance.gold_enqueued:,} / {balance.gold_finished:,}"
        agrees = balance.gold_enqueued == balance.enqueued
        agrees = agrees and balance.gold_finished == balance.completed + balance.dead_lettered
        return [
            ("the broker took", f"{balance.published:,}", f"and still holds {balance.held:,}"),
            ("the lake: enqueued", f"{balance.enqueued:,}", _mark(balance.enqueued == balance.published)),
            ("completed + dead-lettered + backlog", total, _mark(balance.backlog == balance.held)),
            ("the metrics: enqueued / finished", gold, _mark(agrees)),
            ("lost, doubled", f"{lost:,}, {doubled:,}", _mark(not lost and not doubled)),
        ]


def _mark(good: bool) -> str:
    return "✓" if good else "✗"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95)}
