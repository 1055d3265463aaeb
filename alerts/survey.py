"""What rules make of a lake as it is now: which labels, how many series, before anybody is paged by them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from alerts.answer import Answer, Identities
from alerts.aside import RULE_SECONDS, rule_worker
from alerts.freshness import FreshnessProbe
from alerts.rules.expression import ENGINE_VIEWS, bound
from alerts.rules.model import Rule
from alerts.sampled import SampledTenants
from alerts.settings import AlertSettings
from alerts.state import Row
from alerts.views_cache import ViewCache
from lake.definitions import Definitions
from lake.errors import SojournError
from lake.reader import Reader
from lake.state import require_finished
from lake.store import Lake
from lake.worker.worker import Worker

#: More series than this from one rule are more alerts than anybody reads.
MANY = 1000


@dataclass(frozen=True, slots=True)
class Series:
    """What one rule's expression returns: a series for each row, each label with how many values it has.

    ``labels`` are those of the rows; the rule's own and ``alertname`` are the same for all. ``problem`` is what would
    be the rule's error, or why nobody would want so many.
    """

    rule: Rule
    count: int = 0
    labels: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    problem: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """The rules over one lake; ``at`` is the data time at which they were evaluated, None for an empty lake."""

    at: datetime | None
    series: tuple[Series, ...]


def survey(rules: Sequence[Rule], root: Path, settings: AlertSettings) -> Survey:
    """Evaluate the expression of each of ``rules`` once over the lake at ``root``, as the alert process would now.

    What only that process knows – how rules and notifications do – is empty here.
    """
    require_finished(root, ("queue_health_now",))
    with Reader(root) as reader, Worker(root, timeout_seconds=RULE_SECONDS, spare=False) as history:
        views = ViewCache(reader.query, rule_worker(), history.query)
        for name, schema in ENGINE_VIEWS.items():
            views.put(name, schema.empty_table())
        now = datetime.now(UTC)
        freshness, table = FreshnessProbe(Lake(root), settings.stale_after).read(reader.query, now)
        views.put("data_freshness", table)
        views.put("sampled_tenants", SampledTenants(Lake(root), settings.stale_after).read(now))
        at, definitions = freshness.watermark or now, Definitions.load(root)
        try:
            return Survey(freshness.watermark, tuple(_surveyed(rule, views, at, definitions) for rule in rules))
        finally:
            views.close()


def _surveyed(rule: Rule, views: ViewCache, at: datetime, definitions: Definitions) -> Series:
    began = time.monotonic()
    try:
        table = views.query(bound(rule.expr, at, definitions))
        rows = Answer(table).rows(rule, Identities())
    except SojournError as error:
        return Series(rule, seconds=time.monotonic() - began, problem=str(error), failed=True)
    counted = Series(rule, len(rows), _values(table, rows, rule), time.monotonic() - began)
    return _judged(counted, rows)


def _values(table: pa.Table, rows: Sequence[Row], rule: Rule) -> dict[str, int]:
    names = [name.lower() for name in table.column_names]
    seen: dict[str, set[str]] = {
        name: set() for name, column in zip(names, table.schema, strict=True) if pa.types.is_string(column.type)
    }
    for row in rows:
        for name, value in row.labels.items():
            if name in seen:
                seen[name].add(value)
    return {name: len(values) for name, values in seen.items() if name not in {*rule.labels, "value"}}


def _judged(series: Series, rows: Sequence[Row]) -> Series:
    rule, problem, failed = series.rule, None, False
    if len({row.fingerprint for row in rows}) < len(rows):
        problem, failed = "two rows have the same labels", True
    elif rule.limit and series.count > rule.limit:
        problem, failed = f"more than its limit of {rule.limit}", True
    elif series.count > MANY:
        problem = f"more than {MANY} alerts at once"
    return Series(rule, series.count, series.labels, series.seconds, problem, failed)


def described(found: Survey) -> list[str]:
    """Lines for people: one for each rule, most series first."""
    when = "it holds no data" if found.at is None else f"data time {found.at:%Y-%m-%d %H:%M:%S} UTC"
    width = max([len(one.rule.name) for one in found.series], default=0)
    lines = [f"over the lake now ({when}):", f"  {'alert':<{width}}  series  labels"]
    for one in sorted(found.series, key=lambda one: (-one.count, one.rule.name)):
        labels = ", ".join(f"{name} ({count})" for name, count in one.labels.items()) or "none of its own"
        problem = f"  ✗ {one.problem}" if one.problem else ""
        lines.append(f"  {one.rule.name:<{width}}  {one.count:>6,}  {labels}{problem}")
    return lines
