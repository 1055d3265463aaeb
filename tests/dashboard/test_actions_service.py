"""The journal of actions, as it is read on the page and as it goes into a file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dashboard.pages import details
from dashboard.services.actions import Change, journal, steps

NOW = datetime(2026, 3, 1, 3, 7, 0, tzinfo=UTC)


def test_what_a_decision_saw_is_folded_and_short_on_the_page_and_whole_in_the_file() -> None:
    row = {
        "at": NOW,
        "decision": "throttle",
        "tenant": "acme",
        "queue": "orders",
        "before": None,
        "after": 15.0,
        "valid_until": NOW + timedelta(seconds=30),
        "outcome": "applied",
        "policy": "p",
        "action_id": "a1",
        "actuator": "limits_api",
        "rule": "NoisyTenant",
        "reason": "quiet tenants wait 8.59 s",
        "inputs": {"value": "0.49122807017543857", "backlog": "697", "code": "congested", "<b>": "<i>.5"},
    }
    [entry] = journal([row], NOW)
    assert "value 0.49122807017543857" in entry.inputs
    assert dict(entry.seen) == {"value": "0.491", "backlog": "697", "code": "congested", "<b>": "<i>.5"}
    shown = details.journal([entry])
    assert "<summary>What it saw</summary>" in shown and "value 0.491" in shown and "0.4912" not in shown
    assert "<b>" not in shown and "<i>" not in shown


def test_what_was_asked_for_and_has_ended_is_one_step_of_what_people_did() -> None:
    told = [
        ("approve", "a-1", "asked", ""),
        ("approve", "a-1", "done", ""),
        ("approve", "a-1", "asked", ""),  # by another click
        ("approve", "a-1", "failed", "it is over"),
        ("silence", "b-2", "refused", ""),
        ("revoke", "a-1", "asked", ""),  # and nobody knows what came of it
    ]
    written = [
        Change((NOW + timedelta(seconds=place)).isoformat(), "ada", "operator", what, about, outcome, why)
        for place, (what, about, outcome, why) in enumerate(told)
    ]
    assert [(one.what, one.bad) for one in steps(reversed(written), NOW)] == [
        ("revoke a-1: asked", False),
        ("silence b-2: refused", True),
        ("approve a-1: failed", True),
        ("approve a-1: done", False),
    ]
