"""Why an alert fires is told in numbers where the rule asked for them, and as unknown where it did not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from alerts.rules.loader import BUILTIN, rule_files
from alerts.rules.model import RuleEntry
from dashboard import rule_files as texts
from dashboard.pages import details
from dashboard.services import noisy
from dashboard.services.because import Because, because, value_and_threshold
from lake.definitions import Definitions

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEFINITIONS = Definitions()
SHIPPED = [
    rule["alert"]
    for file in rule_files([BUILTIN])
    for group in yaml.safe_load(file.read_text())["groups"]
    for rule in group["rules"]
]


def state(value: float | None = 42.5, inputs: Any = None, **labels: str) -> dict[str, Any]:
    return {"value": value, "inputs": inputs, "labels": labels, "since": NOW, "annotations": {}}


def rule(expr: str, summary: str = "", **more: Any) -> RuleEntry:
    return RuleEntry.model_validate({"alert": "A", "expr": expr, "annotations": {"summary": summary}, **more})


def told(found: Because) -> list[tuple[str, str]]:
    return [(one.says, one.saw) for one in found.conditions]


def test_value_and_threshold_have_the_unit_in_which_the_summary_says_the_value() -> None:
    drained = texts.of("DrainTooLong", rule_files([BUILTIN])).entry
    assert value_and_threshold(state(7200.0, {"threshold": "5400"}), drained, DEFINITIONS) == (
        "2 h",
        "1 h 30 min",
    )
    assert value_and_threshold(state(7200.0), drained, DEFINITIONS) == ("2 h", "1 h")
    assert value_and_threshold(state(7200.0), None, DEFINITIONS) == ("7,200", "unknown")
    assert value_and_threshold(state(None, {"threshold": "x"}), None, DEFINITIONS) == ("unknown", "unknown")


def test_each_of_several_conditions_stands_beside_what_it_saw() -> None:
    expr = (
        "SELECT q.queue, q.depth AS value, q.in_flight, f.age_seconds FROM queue_health_now AS q "
        "JOIN data_freshness AS f ON f.broker = q.broker "
        "WHERE q.depth > :most AND q.in_flight >= 0.9 * q.in_flight_limit AND q.mode = 'backlogged' "
        "AND (q.acked = 0 OR q.acked IS NULL) AND q.oldest_age_seconds > :target_seconds"
    )
    found = because(
        state(63.0, {"in_flight": "95", "age_seconds": "61", "lost": None}, queue="orders"),
        rule(expr, "{{ value | messages }} wait", thresholds={"most": 50}),
        DEFINITIONS,
        NOW,
    )
    assert [(fact.label, fact.value) for fact in found.facts] == [
        ("Value", "63 messages"),
        ("Threshold", "50 messages"),
    ]
    assert found.facts[1].note == "it fires above that"
    nobody = "unknown, as the rule does not select it"
    assert told(found) == [
        ("depth > 50", "depth 63 messages"),
        ("in_flight >= 0.9 * in_flight_limit", f"in_flight 95; {nobody}: in_flight_limit"),
        ("mode = 'backlogged'", "it was so"),
        ("acked = 0 OR acked IS NULL", f"it was so; {nobody}: acked"),
        (f"oldest_age_seconds > {DEFINITIONS.target_seconds:g}", f"it was so; {nobody}: oldest_age_seconds"),
    ]
    assert found.besides == (("age_seconds", "1 min 1 s"), ("lost", "unknown"))


def test_sums_are_matched_whole_and_views_are_named_where_a_column_is_of_two() -> None:
    expr = (
        "SELECT t.queue, SUM(t.arrival_rate) - SUM(t.completion_rate) AS value, SUM(t.arrival_rate) AS arrival_rate "
        "FROM tenant_backlog_now AS t JOIN queue_health_now AS h ON h.queue = t.queue GROUP BY t.queue "
        "HAVING SUM(t.arrival_rate) > 2 * SUM(t.completion_rate) AND MAX(t.as_of) < MAX(h.as_of)"
    )
    found = because(state(8.0, {"arrival_rate": "12"}), rule(expr), DEFINITIONS, NOW)
    assert told(found)[0][0] == "SUM(arrival_rate) > 2 * SUM(completion_rate)"
    assert told(found)[0][1].startswith("arrival_rate 12; unknown")
    assert told(found)[1][0] == "MAX(t.as_of) < MAX(h.as_of)"
    assert found.facts[1].value == "unknown"


def test_a_flag_alone_is_told_with_what_it_means() -> None:
    found = because(state(), texts.of("NoisyTenant", rule_files([BUILTIN])).entry, DEFINITIONS, NOW)
    (only,) = found.conditions
    assert (only.says, only.saw) == ("noisy", "it held 4,250 % of the backlog") and "fair share" in only.means
    assert "fair share" in details.because(found)


def test_of_who_is_noisy_the_row_is_told_in_words_and_each_share_beside_its_threshold() -> None:
    row = {"backlog": "812", "in_flight": "30", "arrival_rate": "84", "completion_rate": "20.5"}
    found = because(state(0.81, row), texts.of("NoisyTenant", rule_files([BUILTIN])).entry, DEFINITIONS, NOW)
    assert found.conditions[0].saw == (
        "it held 81 % of the backlog; 812 messages of its own in the queue; 30 in flight; it sent 84/s, of which "
        "20.5/s were worked off"
    )
    assert noisy.when_it_fired(None, {}) == "it was so", "an alert of before its row was kept"
    told = {
        "known": 1, "work": 7.4, "queue_work": 10.0, "in_flight": 30, "queue_in_flight": 40, "backlog": 812,
        "queue_backlog": 1003, "others_ready": 191, "active_tenants": 5,
    }  # fmt: skip
    said = dict(noisy.now(told, 45.0, 30.0))
    assert said["Share of the work"].startswith("74 %: 7.4 of 10 kept busy; noisy is more than 40 %, with 5 tenants")
    assert said["Share of in flight"].startswith("75 %: 30 of 40 messages")
    assert said["Share of the backlog"] == "81 %: 812 of 1,003 messages"
    assert said["Who waits for it"] == (
        "191 messages of other tenants, the oldest of quiet tenants for 45 s, 1.5 × the target of 30 s"
    )
    assert dict(noisy.now(told | {"others_ready": 0}, None, 30.0))["Who waits for it"].startswith("nobody")
    assert "unknown" in dict(noisy.now(told | {"others_ready": 3}, None, 30.0))["Who waits for it"]
    empty = told | {"work": None, "queue_work": None, "queue_in_flight": 0, "others_ready": None}
    nothing = dict(noisy.now(empty, None, 30.0))
    assert nothing["Share of the work"].startswith("unknown") and nothing["Who waits for it"] == "unknown"
    assert nothing["Share of in flight"].startswith("none of any")
    assert noisy.now(told | {"known": 0}, None, 30.0) == (("Now", "nothing of this tenant is in the queue any more"),)


@pytest.mark.parametrize("expr", ["", "no SQL (", "SELECT 1 AS value UNION SELECT 2 AS value"])
def test_a_rule_that_cannot_be_read_leaves_what_its_row_said(expr: str) -> None:
    entry = rule(expr) if expr else None
    found = because(state(1.0, {"threshold": "0.5", "waiting": "3"}), entry, DEFINITIONS, NOW)
    assert [fact.value for fact in found.facts] == ["1", "0.5"] and found.conditions == ()
    assert found.besides == (("waiting", "3"),)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_rule_can_be_told(name: str) -> None:
    entry = texts.of(name, rule_files([BUILTIN])).entry
    assert entry is not None
    found = because(state(), entry, DEFINITIONS, NOW)
    assert found.conditions or name == "Watchdog"
    assert not any(":" in one.says for one in found.conditions), "no parameter is left without its number"


def test_what_a_rule_says_cannot_inject_markup() -> None:
    expr = "SELECT queue, depth AS value FROM queue_health_now WHERE state = '<b>x</b>'"
    html = details.because(because(state(inputs={"<i>": "<i>"}), rule(expr), DEFINITIONS, NOW))
    assert "<b>" not in html and "<i>" not in html


def test_what_is_over_is_told_as_of_when_it_last_fired() -> None:
    entry = rule("SELECT queue, depth AS value FROM queue_health_now WHERE depth > 50")
    over = {**state(7.0), "fingerprint": "f", "state": "inactive"}
    steps = [("inactive", "pending", 51.0), ("pending", "firing", 63.0), ("firing", "keep_firing", 9.0)]
    changes = [
        {"fingerprint": "f", "at": NOW, "from_state": before, "to_state": after, "value": value, "inputs": None}
        for before, after, value in steps
    ]
    found = because(over, entry, DEFINITIONS, NOW, changes)
    assert (found.facts[0].value, found.facts[0].note) == ("63", "when it fired, 12:00:00 UTC")
    assert told(found) == [("depth > 50", "depth 63")]
