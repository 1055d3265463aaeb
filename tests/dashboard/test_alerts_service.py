"""Alerts as the page about them tells them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from dashboard.services.alerts import alert_lines, alert_story

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def state(name: str, state: str, minutes: float, **more: Any) -> dict[str, Any]:
    return {
        "rule_group": "g",
        "rule": name,
        "fingerprint": name,
        "labels": {"severity": "warning", "queue": "orders"},
        "annotations": {},
        "state": state,
        "value": 1.0,
        "since": NOW - timedelta(minutes=minutes),
        "data_as_of": NOW,
        "reason": "",
        **more,
    }


def change(name: str, before: str, after: str, minutes: float) -> dict[str, Any]:
    row = state(name, after, minutes)
    return {**row, "at": row["since"], "from_state": before, "to_state": after}


def test_the_loudest_first_then_what_is_pending_then_what_was_resolved_today() -> None:
    states = [
        state("over", "inactive", 5),
        state("long over", "inactive", 3000),
        state("only pending once", "inactive", 5),
        state("waits", "pending", 1),
        state("warns", "firing", 3),
        state("burns", "firing", 1, labels={"severity": "critical"}),
        state("Watchdog", "firing", 100),
    ]
    changes = [change(name, "pending", "firing", 10) for name in ("over", "long over", "warns", "burns")]
    lines = alert_lines(states, changes, [], NOW, NOW - timedelta(days=1))
    assert [line.card.title for line in lines] == ["burns", "warns", "waits", "over"]
    assert [line.resolved for line in lines] == [False, False, False, True]
    assert lines[0].card.since == "since 11:50 UTC (10 min ago)"


def test_only_an_address_of_the_web_is_a_runbook() -> None:
    for address, kept in (("https://wiki/x", True), ("javascript:alert(1)", False), ("http://[", False), ("", False)):
        row = state("warns", "firing", 3, annotations={"runbook_url": address, "note": "n"})
        [line] = alert_lines([row], [], [], NOW, NOW)
        story = alert_story(line, row, [], [], NOW)
        assert bool(story.runbook) is kept
        assert story.notes == (("note", "n"),)


def test_deliveries_are_those_of_groups_that_the_alert_is_in() -> None:
    row = state("warns", "firing", 3, labels={"queue": 'a"b\\c', "broker": "nats"})
    [line] = alert_lines([row], [], [], NOW, NOW)

    def told(group_key: str) -> int:
        delivery = {
            "at": NOW,
            "receiver": "r",
            "group_key": group_key,
            "status": "firing",
            "attempt": 1,
            "outcome": "delivered",
            "status_code": 200,
            "error": None,
            "duration_seconds": 0.1,
        }
        return len(alert_story(line, row, [], [delivery], NOW).deliveries)

    assert told("{}:{}") == 1
    assert told('{}:{queue="a\\"b\\\\c"}') == 1
    assert told('{}/{severity="page"}:{broker="nats"}') == 1
    assert told('{}:{broker="kafka"}') == 0
    assert told('{}:{tenant="t"}') == 0


def test_what_came_and_went_while_an_alert_fired_on_is_one_step() -> None:
    row = state("warns", "firing", 3)
    flaps = [("firing", "keep_firing"), ("keep_firing", "firing")] * 3
    rows = [change("warns", "inactive", "firing", 9)]
    rows += [change("warns", *flap, 8 - place) for place, flap in enumerate(flaps)]
    [line] = alert_lines([row], rows, [], NOW, NOW)
    [last, first] = alert_story(line, row, rows, [], NOW).changes
    assert last.what == "kept firing, though it did not match 3 times" and last.why.startswith("since 11:52:00 UTC")
    assert first.what == "inactive → firing, value 1"
    assert len(alert_story(line, row, rows[:3], [], NOW).changes) == 3
