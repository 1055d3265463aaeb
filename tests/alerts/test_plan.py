from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from alerts.models import AlertInstance, AlertState, fingerprint
from alerts.notify.payload import alertmanager
from alerts.notify.plan import Decision, Entry, Notice, Reason, plan
from alerts.settings import ReceiverSettings, RouteSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECEIVER = ReceiverSettings(name="pager", url="https://example.org/hook")
ROUTE = RouteSettings(group_interval=timedelta(seconds=10), repeat_interval=timedelta(hours=1))
Log = dict[tuple[str, str], Entry]


def alert(tenant: str = "acme", *, name: str = "NoisyTenant", queue: str = "orders") -> AlertInstance:
    labels = {"alertname": name, "broker": "nats", "queue": queue, "tenant": tenant}
    return AlertInstance(
        name, "g", labels, {"summary": f"{tenant} is noisy"}, 0.9, AlertState.FIRING, NOW, NOW, fingerprint(labels)
    )


def told(
    notices: list[Notice],
    log: Log | None = None,
    *,
    receiver: ReceiverSettings = RECEIVER,
    route: RouteSettings = ROUTE,
    now: datetime = NOW,
) -> tuple[list[Decision], Log]:
    log = log or {}
    decisions = plan(notices, log, [receiver], route, now)
    return decisions, log | {(d.receiver, d.group_key): d.entry for d in decisions if d.entry}


def reasons(decisions: list[Decision]) -> list[tuple[bool, Reason]]:
    return [(d.send, d.reason) for d in decisions]


def test_a_group_is_told_once_and_again_when_the_repeat_interval_has_passed() -> None:
    decisions, log = told([Notice(alert())])
    assert reasons(decisions) == [(True, Reason.FIRST)]
    decisions, _ = told([Notice(alert())], log, now=NOW + timedelta(minutes=59))
    assert reasons(decisions) == [(False, Reason.UNCHANGED)]
    assert decisions[0].due_at == NOW + timedelta(hours=1)
    decisions, _ = told([Notice(alert())], log, now=NOW + timedelta(hours=1))
    assert reasons(decisions) == [(True, Reason.REPEAT)]


def test_alerts_that_share_the_group_labels_share_a_notification() -> None:
    decisions, _ = told([Notice(alert("a")), Notice(alert("b")), Notice(alert("a", queue="mails"))])
    assert [(d.group_labels["queue"], len(d.firing)) for d in decisions] == [("orders", 2), ("mails", 1)]
    assert decisions[0].group_key == '{}:{alertname="NoisyTenant", broker="nats", queue="orders"}'


def test_a_new_alert_of_a_group_waits_for_the_group_interval() -> None:
    _, log = told([Notice(alert("a"))])
    both = [Notice(alert("a")), Notice(alert("b"))]
    decisions, _ = told(both, log, now=NOW + timedelta(seconds=9))
    assert reasons(decisions) == [(False, Reason.GROUP_INTERVAL)]
    assert decisions[0].due_at == NOW + timedelta(seconds=10)
    decisions, _ = told(both, log, now=NOW + timedelta(seconds=10))
    assert reasons(decisions) == [(True, Reason.NEW_ALERTS)]


def test_a_new_group_waits_for_the_group_wait() -> None:
    route = RouteSettings(group_wait=timedelta(seconds=5))
    decisions, _ = told([Notice(alert())], route=route)
    assert reasons(decisions) == [(False, Reason.GROUP_WAIT)]
    decisions, _ = told([Notice(alert())], route=route, now=NOW + timedelta(seconds=5))
    assert reasons(decisions) == [(True, Reason.FIRST)]


def test_what_was_told_is_also_told_to_be_over_and_then_no_more() -> None:
    _, log = told([Notice(alert())])
    later = NOW + timedelta(minutes=1)
    decisions, log = told([Notice(alert(), resolved_at=later)], log, now=later)
    assert reasons(decisions) == [(True, Reason.RESOLVED)]
    decisions, _ = told([Notice(alert(), resolved_at=later)], log, now=later + timedelta(hours=2))
    assert reasons(decisions) == [(False, Reason.UNCHANGED)]


def test_what_was_never_told_is_not_told_to_be_over() -> None:
    decisions, log = told([Notice(alert(), resolved_at=NOW)])
    assert reasons(decisions) == [(False, Reason.UNCHANGED)]
    assert log == {}


def test_one_of_two_alerts_that_is_over_is_told() -> None:
    _, log = told([Notice(alert("a")), Notice(alert("b"))])
    later = NOW + timedelta(minutes=1)
    decisions, _ = told([Notice(alert("a")), Notice(alert("b"), resolved_at=later)], log, now=later)
    assert reasons(decisions) == [(True, Reason.SOME_RESOLVED)]
    assert [n.alert.labels["tenant"] for n in decisions[0].resolved] == ["b"]


def test_a_receiver_may_not_want_resolved_alerts_and_hears_of_the_next_firing() -> None:
    receiver = RECEIVER.model_copy(update={"send_resolved": False})
    _, log = told([Notice(alert())], receiver=receiver)
    later = NOW + timedelta(minutes=1)
    decisions, log = told([Notice(alert(), resolved_at=later)], log, receiver=receiver, now=later)
    assert reasons(decisions) == [(False, Reason.NOT_WANTED)]
    decisions, _ = told([Notice(alert())], log, receiver=receiver, now=later + timedelta(minutes=1))
    assert [d.send for d in decisions] == [True]


def test_only_the_watchdogs_receiver_hears_of_the_watchdog_and_of_nothing_else() -> None:
    route = RouteSettings(watchdog="outside", watchdog_interval=timedelta(minutes=1))
    outside = RECEIVER.model_copy(update={"name": "outside"})
    notices = [Notice(alert(name="Watchdog")), Notice(alert())]
    decisions = plan(notices, {}, [RECEIVER, outside], route, NOW)
    assert [(d.receiver, d.group_labels["alertname"]) for d in decisions] == [
        ("pager", "NoisyTenant"),
        ("outside", "Watchdog"),
    ]
    assert [d.receiver for d in plan([notices[0]], {}, [RECEIVER], RouteSettings(), NOW)] == []


def test_a_receiver_with_match_hears_only_of_alerts_with_these_labels() -> None:
    receiver = RECEIVER.model_copy(update={"match": {"tenant": "b"}})
    decisions, _ = told([Notice(alert("a")), Notice(alert("b"))], receiver=receiver)
    assert [[n.alert.labels["tenant"] for n in d.firing] for d in decisions] == [["b"]]


def test_the_payload_is_alertmanagers_webhook_version_4() -> None:
    over = replace(alert("b"), state=AlertState.INACTIVE)
    notices = [Notice(alert("a"), None, NOW), Notice(over, NOW + timedelta(minutes=1), NOW)]
    _, log = told([Notice(alert("a")), Notice(alert("b"))])
    (decision,), _ = told(notices, log, now=NOW + timedelta(minutes=1))
    payload = alertmanager(decision, "http://sojourn:9095")
    assert payload == {
        "receiver": "pager",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": {"alertname": "NoisyTenant", "broker": "nats", "queue": "orders", "tenant": "a"},
                "annotations": {"summary": "a is noisy", "data_as_of": "2026-01-01T12:00:00.000000Z", "value": "0.9"},
                "startsAt": "2026-01-01T12:00:00.000000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://sojourn:9095/api/v2/alerts",
                "fingerprint": alert("a").fingerprint,
            },
            {
                "status": "resolved",
                "labels": {"alertname": "NoisyTenant", "broker": "nats", "queue": "orders", "tenant": "b"},
                "annotations": {"summary": "b is noisy", "data_as_of": "2026-01-01T12:00:00.000000Z", "value": "0.9"},
                "startsAt": "2026-01-01T12:00:00.000000Z",
                "endsAt": "2026-01-01T12:01:00.000000Z",
                "generatorURL": "http://sojourn:9095/api/v2/alerts",
                "fingerprint": alert("b").fingerprint,
            },
        ],
        "groupLabels": {"alertname": "NoisyTenant", "broker": "nats", "queue": "orders"},
        "commonLabels": {"alertname": "NoisyTenant", "broker": "nats", "queue": "orders"},
        "commonAnnotations": {"data_as_of": "2026-01-01T12:00:00.000000Z", "value": "0.9"},
        "externalURL": "http://sojourn:9095",
        "version": "4",
        "groupKey": '{}:{alertname="NoisyTenant", broker="nats", queue="orders"}',
        "truncatedAlerts": 0,
    }


def test_what_is_told_leads_to_the_alerts_own_page_where_the_dashboard_is_known() -> None:
    one, theirs = alert("a"), replace(alert("b"), generator_url="http://prometheus.example/graph")
    (decision, *_), _ = told([Notice(one), Notice(theirs)])
    payload = alertmanager(decision, "http://sojourn:9095", dashboard="https://sojourn.example/")
    found = {told["labels"]["tenant"]: told["generatorURL"] for told in payload["alerts"]}
    assert found == {
        "a": f"https://sojourn.example/alerts?alert={one.fingerprint}",
        "b": "http://prometheus.example/graph",
    }
    assert payload["externalURL"] == "http://sojourn:9095"


def test_a_body_holds_so_many_alerts_and_counts_the_rest() -> None:
    (decision,), _ = told([Notice(alert(f"t{number}")) for number in range(501)])
    payload = alertmanager(decision, "")
    assert (len(payload["alerts"]), payload["truncatedAlerts"]) == (500, 1)


def test_alerts_of_equal_fingerprint_are_one_alert_that_fires_while_any_fires() -> None:
    later = NOW + timedelta(seconds=30)
    mine, others = alert(), replace(alert(), group="h", fired_at=later)
    decisions, log = told([Notice(mine), Notice(others)])
    assert [[n.alert.group for n in d.firing] for d in decisions] == [["g"]]
    for tenth in range(100):  # the one rule ends, the other does not
        half = [Notice(mine, resolved_at=later), Notice(others)]
        decisions, log = told(half, log, now=later + timedelta(seconds=tenth * 10))
        assert [(d.send, len(d.firing), len(d.resolved)) for d in decisions] == [(False, 1, 0)]
    over = [Notice(mine, resolved_at=later), Notice(others, resolved_at=later + timedelta(seconds=1))]
    decisions, _ = told(over, log, now=later + timedelta(minutes=20))
    assert [[n.alert.group for n in d.resolved] for d in decisions] == [["h"]]
