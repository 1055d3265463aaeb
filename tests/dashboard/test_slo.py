"""The page of objectives: the burn that alerts are decided by, the budget that is left, and what was declared."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.objectives import SloEntry, lengths_of, rules_of
from alerts.rules.loader import OPTIONAL, load_objectives
from dashboard.pages import frame
from dashboard.questions.slo import over_time, ranked
from dashboard.run import OBJECTIVES_VARIABLE, environment
from dashboard.services import slo
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from dashboard.settings import DashboardSettings
from lake.reader import Reader
from lake.sql.parameters import with_values
from tests.dashboard.conftest import STORY_END
from tests.dashboard.test_pages import AGES, heading, opened, words

AT = STORY_END - timedelta(seconds=1)


def objective(**more: object) -> SloEntry:
    return SloEntry.model_validate({"slo": "Fast", "objective": "99%", "within": "5s", "minimum": 10, **more})


def test_the_page_says_who_burns_the_budget_and_what_is_left(
    story: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(story, stale_after_seconds=AGES)
    environ = environment(DashboardSettings(), story, {}, [objective(), objective(slo="Per", per="tenant")])
    monkeypatch.setenv(OBJECTIVES_VARIABLE, environ[OBJECTIVES_VARIABLE])
    app = opened("slo")
    said = words(app)
    assert heading(app) == "orders burns its budget too fast"
    assert "99 % of first attempts within 5 s, for each queue, over 30 d" in said
    assert re.search(r"orders ▲ burns fast none [\d,]+ of [\d,]+ [\d.]+ × .* spent", said)
    assert "emails ✓ keeps it 100 %" in said and "No objective is declared" not in said
    assert len(app.get("plotly_chart")) == 1
    tenant = opened("slo", slo="Per", find="ACME", whose="acme-7 on orders")
    assert heading(tenant) == "acme-7 on orders burns its budget too fast"


def test_without_declared_objectives_the_lakes_target_is_held_up_and_named_as_that(
    story: Path, show: Callable[..., None]
) -> None:
    show(story, stale_after_seconds=AGES)
    said = words(opened("slo"))
    assert "No objective is declared, and none alerts" in said and "within 30 s" in said


@pytest.mark.parametrize("per", ["queue", "tenant"])
def test_who_burns_too_fast_is_whom_the_rules_alert_on(story: Path, per: str) -> None:
    one = objective(per=per)
    with Reader(story) as reader:
        shown = slo.burns(one, reader.query(ranked(one, AT, "", 50, 1)).to_pylist())
        for rule in rules_of(one):
            sql = with_values(rule.expr, {"evaluation_time": AT})
            sql = sql.replace("h.coverage IS NULL OR", "TRUE OR")  # the page shows what policies would not act on, too
            fired = {(QueueKey.of(row), row.get("tenant")): row["value"] for row in reader.query(sql).to_pylist()}
            mine = {(burn.key, burn.tenant) for burn in shown if burn.severity == rule.labels["severity"]}
            assert mine <= set(fired)
    assert {burn.severity for burn in shown} == {"critical", None}
    assert len([burn for burn in shown if burn.severity]) == (1 if per == "queue" else 8)


def test_what_is_late_over_time_adds_up_to_what_the_windows_count(story: Path) -> None:
    one, key = objective(), QueueKey("nats", "orders")
    with Reader(story) as reader:
        rows = reader.query(over_time(one, key, None, Span.ending(AT, "15 min"))).to_pylist()
        whole = next(row for row in reader.query(ranked(one, AT, "orders", 5, 1)).to_pylist())
    assert sum(row["late"] for row in rows) == whole[f"late_{lengths_of(one)[-1]}"] > 0
    curve = slo.over_time(one, Span(0, 20, 10), [{"at": 10, "attempts": 200, "late": 4}])
    assert curve.values == (None, pytest.approx(2.0), None)


def test_objectives_that_rule_files_declare_reach_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = load_objectives([OPTIONAL])
    assert [one.slo for one in declared] == ["FirstAttempt", "TenantFirstAttempt"]
    environ = environment(DashboardSettings(), Path("/lake"), {}, declared)
    monkeypatch.setenv(OBJECTIVES_VARIABLE, environ[OBJECTIVES_VARIABLE])
    assert frame.objectives() == declared
