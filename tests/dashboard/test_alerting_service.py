from __future__ import annotations

from datetime import timedelta
from typing import Any

from dashboard.services.alerting import alert_cards, happenings, in_short, limit_cards
from dashboard.services.keys import QueueKey
from tests.dashboard.conftest import STORY_END as NOW
from tests.dashboard.scene import actions_of, alerts_of

ORDERS = QueueKey("nats", "orders")
TURNED = NOW - timedelta(minutes=3)


def transitions() -> list[dict[str, Any]]:
    return [
        {**row, "labels": dict(row["labels"]), "annotations": dict(row["annotations"])} for row in alerts_of(TURNED)
    ]


def states(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    newest = {row["fingerprint"]: row for row in sorted(rows, key=lambda row: row["at"])}
    return [{**row, "state": row["to_state"], "since": row["at"]} for row in newest.values()]


def test_a_firing_alert_says_what_since_when_and_about_whom() -> None:
    (card,) = alert_cards(states(transitions()), transitions(), [ORDERS], NOW)
    assert card.firing and card.severity == "critical" and card.queue == ORDERS
    assert card.since == "since 03:04 UTC (2 min 48 s ago)"
    assert card.summary == "Tenant acme-7 holds the shared queue orders while others wait"
    assert card.about == "broker nats · queue orders · tenant acme-7"


def test_the_watchdog_is_not_news() -> None:
    assert not any("Watchdog" in card.title for card in alert_cards(states(transitions()), [], [ORDERS], NOW))


def test_an_alert_that_is_kept_firing_has_fired_since_it_began() -> None:
    rows = transitions()
    rows.append({**rows[-1], "at": NOW, "from_state": "firing", "to_state": "keep_firing"})
    (card,) = alert_cards(states(rows), rows, [ORDERS], NOW)
    assert card.firing and card.since.startswith("since 03:04")


def test_firing_comes_before_pending_and_loud_before_quiet() -> None:
    base = states(transitions())[-1]
    rows = [
        {**base, "rule": name, "fingerprint": name, "state": state, "labels": {**base["labels"], "severity": severity}}
        for name, state, severity in (
            ("pending", "pending", "critical"),
            ("quiet", "firing", "info"),
            ("loud", "firing", "page"),
            ("odd", "firing", "unheard-of"),
            ("gone", "inactive", "critical"),
        )
    ]
    assert [card.title for card in alert_cards(rows, [], [], NOW)] == ["loud", "odd", "quiet", "pending"]


def test_a_limit_shows_its_rate_its_expiry_and_its_reason() -> None:
    row = {**actions_of(TURNED, NOW)[-1], "rate": 9.5}
    (card,) = limit_cards([row], NOW)
    assert (card.tenant, card.limit, card.expires) == ("acme-7", "9.5/s", "expires in 30 s")
    assert "63 % of in flight" in card.reason


def test_an_expired_limit_is_not_in_force() -> None:
    row = {**actions_of(TURNED, NOW)[-1], "rate": 9.5}
    assert limit_cards([row], NOW + timedelta(seconds=31)) == ()


def test_what_happened_leaves_out_pending_alerts_the_watchdog_and_repeated_decisions() -> None:
    acts = [dict(row) for row in actions_of(TURNED, NOW)]
    acts.append({**acts[-1], "at": NOW, "reason": "renewed"})
    told = happenings(transitions(), acts, NOW)
    assert [event.what for event in told] == [
        "throttle acme-7 → 9.5/s",
        "throttle acme-7 → 15/s",
        "TenantHoldsSharedQueue · acme-7 fires",
    ]


def test_a_list_tells_the_steps_that_a_limit_took_one_way_as_one() -> None:
    first, last = (dict(row) for row in actions_of(TURNED, NOW))
    other = {**first, "at": NOW + timedelta(seconds=1), "queue": "mails"}
    events = happenings([], [first, last, other], NOW)
    assert [event.what for event in in_short(events)] == ["throttle acme-7 → 15/s", "throttle acme-7 → 9.5/s"]
    assert in_short(events)[1].why == f"{last['reason']}; the last of 2 steps since {events[-1].when}"
    assert in_short(events, 1) == events[:1]


def test_a_dry_run_says_that_nothing_was_changed() -> None:
    row = {**actions_of(TURNED, NOW)[0], "outcome": "dry_run", "dry_run": True}
    assert happenings([], [row], NOW)[0].what.endswith("(dry run: nothing was changed)")


def test_a_receipt_is_shown_with_what_it_says() -> None:
    row = {**actions_of(TURNED, NOW)[0], "decision": "receipt", "outcome": "told", "after": None, "reason": "saved 7"}
    (event,) = happenings([], [row], NOW)
    assert (event.what, event.why) == ("receipt of acme-7's limit", "saved 7")
