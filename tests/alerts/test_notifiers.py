"""One contract for every notifier, over real HTTP, and what each one's service must be sent."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from alerts.models import AlertInstance, AlertState, fingerprint
from alerts.notify.breaker import FAILURES, Breaker
from alerts.notify.notifiers import NOTIFIERS, notifier_of
from alerts.notify.notifiers.base import Mail, Notification, Request, Unsayable
from alerts.notify.payload import alertmanager, encoded
from alerts.notify.plan import Decision, Notice, Reason, plan
from alerts.notify.settings import ReceiverSettings
from alerts.notify.trial import trial
from alerts.routing.muting import Muting
from alerts.routing.settings import RouteSettings
from alerts.routing.silence import Silence
from alerts.store import OutboxMessage
from alerts.store.database import transaction
from lake.errors import UserError
from tests.alerts.helpers import SECRET, WebhookReceiver
from tests.alerts.test_sender import Post, Receivers, posting

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = "0123456789abcdef0123456789abcdef"
OLD = "whsec_" + base64.b64encode(b"the key before: 24 bytes").decode()
TEMPLATE = '{"what": {{ status | json }}, "who": {{ common_labels.queue | json }}, "of": {{ alerts | count }}}'
MORE: dict[str, dict[str, Any]] = {
    "pagerduty": {"secret_env": "KEY"},
    "opsgenie": {"secret_env": "KEY"},
    "template": {"template": TEMPLATE, "secret_env": "KEY"},
    "webhook": {"secret_env": "HOOK_SECRET"},
    "alertmanager": {"secret_env": "KEY"},
}
BY_HTTP = sorted(NOTIFIERS.keys() - {"email"})


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("OLD_SECRET", OLD)
    monkeypatch.setenv("KEY", KEY)


def settings(format: str, url: str = "https://example.org/hook", **more: Any) -> ReceiverSettings:
    given = {"name": "pager", "url": url, "format": format, "allow_private": True, **MORE.get(format, {}), **more}
    return ReceiverSettings.model_validate(given)


def notice(queue: str = "orders", over: bool = False, **labels: str) -> Notice:
    labels = {"alertname": "QueueStalled", "broker": "nats", "queue": queue, "severity": "critical", **labels}
    notes = {"summary": f"Nothing leaves {queue}", "runbook": "https://example.org/stalled"}
    alert = AlertInstance("r", "g", labels, notes, 3.0, AlertState.FIRING, AT, AT, fingerprint(labels))
    return Notice(alert, AT + timedelta(minutes=5) if over else None)


def told(*notices: Notice, id: str = "msg_1", key: str = "{}:{}", at: datetime = AT) -> Notification:
    firing = tuple(one for one in notices if one.resolved_at is None)
    over = tuple(one for one in notices if one.resolved_at is not None)
    decision = Decision("pager", key, {"alertname": "QueueStalled"}, True, Reason.FIRST, firing, over)
    return Notification(id, key, encoded(alertmanager(decision, "https://sojourn.example")), at)


def put(post: Post, notification: Notification) -> None:
    payload = notification.payload
    message = OutboxMessage(
        notification.id, "pager", notification.group_key, payload["status"], 1, notification.body, datetime.now(UTC), AT
    )
    with transaction(post.db):
        message.insert(post.db)
    post.sender.wake()


def written(format: str, *notices: Notice, **more: Any) -> dict[str, Any]:
    request = notifier_of(settings(format, **more)).write(told(*notices))
    assert isinstance(request, Request)
    body = json.loads(request.body)
    assert isinstance(body, dict)
    return body


HOSTILE = [
    "<!channel> <http://evil.example|click> & *bold*",
    "[click](javascript:alert(1)) \x1b[31m \u202e \u2028",
    "a\r\nBcc: victim@example.org\r\n\r\n<script>",
    '"}, {"routing_key": "x" \\',
    "x" * 10_000,
    "é 漢字 🙂",
]


@pytest.mark.parametrize("format", BY_HTTP)
def test_it_tells_that_a_group_fires_and_that_it_is_over(
    tmp_path: Path, receiver: WebhookReceiver, format: str
) -> None:
    with posting(tmp_path / "s", settings(format, receiver.url)) as post:
        put(post, told(notice()))
        put(post, told(notice(over=True), id="msg_2"))
        first, second = receiver.wait(2)
        assert [outcome[2:] for outcome in post.outcomes(2)] == [("delivered", 200)] * 2
    assert json.loads(first.body) != json.loads(second.body), "firing and resolved are two things"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["user-agent"] == "Sojourn"


@pytest.mark.parametrize("format", BY_HTTP)
def test_a_failed_attempt_is_repeated_as_the_same_and_a_refused_one_is_not(
    tmp_path: Path, receivers: Receivers, format: str
) -> None:
    receiver = receivers((500, {}), (200, {}), (400, {}))
    with posting(tmp_path / "s", settings(format, receiver.url)) as post:
        put(post, told(notice()))
        one, again = receiver.wait(2)
        put(post, told(notice(over=True), id="msg_2"))
        assert [outcome[2:] for outcome in post.outcomes(3)] == [("retry", 500), ("delivered", 200), ("refused", 400)]
    if format != "alertmanager":  # whose end moves on with the time
        assert one.body == again.body
    assert one.path == again.path and one.headers.get("webhook-id") == again.headers.get("webhook-id")


@pytest.mark.parametrize("format", BY_HTTP)
def test_neither_redirects_nor_private_addresses_are_followed(
    tmp_path: Path, receivers: Receivers, receiver: WebhookReceiver, format: str
) -> None:
    redirecting = receivers((307, {"location": receiver.url}))
    with posting(tmp_path / "a", settings(format, redirecting.url)) as post:
        put(post, told(notice()))
        assert post.outcomes(1)[0][2:] == ("refused", 307)
    inside = receiver.url.replace("127.0.0.1", "localhost")
    with posting(tmp_path / "b", settings(format, inside, allow_private=False)) as post:
        put(post, told(notice()))
        assert post.outcomes(1)[0][2:] == ("refused", None)
    assert receiver.received == []


@pytest.mark.parametrize("format", BY_HTTP)
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_label_says_it_is_one_bounded_text(format: str, hostile: str) -> None:
    request = notifier_of(settings(format)).write(
        told(*[notice(tenant=f"{n}{hostile}", queue=hostile) for n in range(60)])
    )
    assert isinstance(request, Request)
    json.loads(request.body)
    whole = format in ("webhook", "alertmanager")  # which pass on what is there
    assert whole or len(request.body) < 25_000
    assert not any("\n" in value or "\r" in value for value in request.headers.values())
    text = request.body.decode()
    if not whole:
        assert "\u202e" not in text and "\\u001b" not in text
    if format == "slack":
        assert "<!channel>" not in text and "<http" not in text


@pytest.mark.parametrize("format", BY_HTTP)
def test_its_key_is_in_no_error_and_no_log(
    tmp_path: Path, receivers: Receivers, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = receivers((500, {}), (401, {}))
    with posting(tmp_path / "s", settings(format, receiver.url)) as post:
        put(post, told(notice()))
        post.outcomes(2)
        errors = " ".join(row[0] for row in post.db.execute("SELECT error FROM deliveries WHERE error IS NOT NULL"))
    assert KEY not in caplog.text + errors and SECRET not in caplog.text + errors


@pytest.mark.parametrize("format", ["pagerduty", "opsgenie"])
@pytest.mark.parametrize("key", [None, "a b", "ключ", "x\ny"])
def test_a_key_that_cannot_be_one_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, format: str, key: str | None
) -> None:
    if key is not None:
        monkeypatch.setenv("KEY", key)
    with pytest.raises(UserError, match="key") as caught:
        notifier_of(settings(format, secret_env="KEY" if key is not None else None))
    assert key is None or key not in str(caught.value)


def test_while_keys_change_both_sign() -> None:
    request = notifier_of(settings("webhook", old_secret_env="OLD_SECRET")).write(told(notice(), at=datetime.now(UTC)))
    assert isinstance(request, Request)
    for key in (SECRET, OLD):
        Webhook(key).verify(request.body, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + base64.b64encode(b"a key of somebody else's").decode()).verify(
            request.body, dict(request.headers)
        )


def test_pagerduty_opens_and_closes_one_incident() -> None:
    fired = written("pagerduty", notice())
    over = written("pagerduty", notice(over=True))
    assert (fired["routing_key"], fired["event_action"], over["event_action"]) == (KEY, "trigger", "resolve")
    assert fired["dedup_key"] == over["dedup_key"] and len(fired["dedup_key"]) <= 255
    assert fired["payload"]["summary"] == "[FIRING:1] QueueStalled nats orders"
    assert (fired["payload"]["severity"], fired["payload"]["source"]) == ("critical", "nats")
    assert fired["payload"]["timestamp"] == "2026-01-01T12:00:00.000000Z"
    assert fired["client_url"] == "https://sojourn.example"
    assert notifier_of(settings("pagerduty")).write(told(notice(), key="{}:{other}")).body != encoded(fired)  # type: ignore[union-attr]
    mixed = written("pagerduty", notice(), notice(queue="mails", over=True))
    assert mixed["event_action"] == "trigger", "something fires"
    given = ReceiverSettings.model_validate({"name": "p", "format": "pagerduty", "secret_env": "KEY"})
    assert given.url == "https://events.pagerduty.com/v2/enqueue"


def test_opsgenie_creates_and_closes_under_one_alias(tmp_path: Path, receiver: WebhookReceiver) -> None:
    base = receiver.url.removesuffix("/hook")
    with posting(tmp_path / "s", settings("opsgenie", base)) as post:
        put(post, told(notice()))
        put(post, told(notice(over=True), id="msg_2"))
        create, close = receiver.wait(2)
    body = json.loads(create.body)
    assert (create.path, body["priority"], body["details"]["queue"]) == ("/v2/alerts", "P1", "orders")
    assert close.path == f"/v2/alerts/{body['alias']}/close?identifierType=alias"
    assert create.headers["authorization"] == f"GenieKey {KEY}"


def test_slack_and_teams_say_it_in_words() -> None:
    slack = written("slack", notice())
    assert slack["text"] == "[FIRING:1] QueueStalled nats orders"
    assert "Nothing leaves orders" in slack["attachments"][0]["text"] and slack["attachments"][0]["color"] == "danger"
    assert written("slack", notice(over=True))["attachments"][0]["color"] == "good"
    (attachment,) = written("teams", notice())["attachments"]
    card = attachment["content"]
    assert (card["type"], card["body"][0]["inlines"][0]["text"]) == (
        "AdaptiveCard",
        "[FIRING:1] QueueStalled nats orders",
    )
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}


def test_an_alertmanager_is_sent_each_alert_with_an_end_that_moves_on() -> None:
    notifier = notifier_of(settings("alertmanager", "https://example.org/am/", repeat_interval="30s"))
    request = notifier.write(told(notice(), notice(queue="mails", over=True)))
    assert isinstance(request, Request)
    assert (request.target.path, request.headers["authorization"]) == ("/am/api/v2/alerts", f"Bearer {KEY}")
    fired, over = json.loads(request.body)
    assert fired["endsAt"] == "2026-01-01T12:02:00+00:00"
    assert over["endsAt"] == "2026-01-01T12:05:00.000000Z"
    assert fired["labels"]["queue"] == "orders" and fired["generatorURL"]


def test_what_an_alertmanager_was_told_is_repeated_although_it_is_silenced() -> None:
    receiver, route = settings("alertmanager"), RouteSettings()
    one = notice()
    (first,) = plan([one], {}, [receiver], route, AT)
    assert first.entry is not None
    log = {("pager", first.group_key): first.entry}
    held = {one.alert.fingerprint: Muting((Silence("s", (), AT, AT + timedelta(hours=1), "a", "", AT),))}
    (later,) = plan([one], log, [receiver], route, AT + timedelta(seconds=59), muting=held)
    assert (later.send, later.due_at) == (False, AT + timedelta(minutes=1))
    (later,) = plan([one], log, [receiver], route, AT + timedelta(minutes=1), muting=held)
    assert (later.send, later.reason) == (True, Reason.REPEAT)
    (never,) = plan([one], {}, [receiver], route, AT + timedelta(minutes=1), muting=held)
    assert never.send is False


def test_a_template_writes_a_body_of_its_own() -> None:
    assert written("template", notice(), notice()) == {"what": "firing", "who": "orders", "of": 2}


@pytest.mark.parametrize(
    "template",
    [
        '{"a": {{ common_labels.nothing | json }}}',
        '{"a": "{{ alerts[7].labels.queue }}"}',
        "{{ common_labels.queue }}",
        "{% for a in alerts %}{% for b in alerts %}" + "{{ a.labels | json }}" * 90 + "{% endfor %}{% endfor %}",
        '{"a": {{ 1 // 0 }}}',
    ],
)
def test_what_a_template_cannot_say_is_told_as_its_fault(
    tmp_path: Path, receiver: WebhookReceiver, template: str
) -> None:
    with pytest.raises(Unsayable, match="template"):
        notifier_of(settings("template", template=template)).write(told(notice(), notice()))
    with posting(tmp_path / "s", settings("template", receiver.url, template=template)) as post:
        put(post, told(notice()))
        assert post.outcomes(1)[0][2:] == ("refused", None)
        assert "template" in post.db.execute("SELECT error FROM deliveries").fetchone()[0]
    assert receiver.received == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "template"},
        {"format": "template", "template": "{{ labls }}"},
        {"format": "template", "template": "{{ ''.__class__ }}" + "{{ status.__class__() }}"},
        {"format": "template", "template": "x" * 9000},
        {"format": "template", "template": "x", "content_type": "text/plain\r\nx: y"},
        {"template": "x"},
        {"format": "email"},
        {"format": "email", "url": "smtp://mail.example", "mail_from": "a@example.org"},
        {"format": "email", "url": "smtp://mail.example", "mail_from": "a@b\r\nBcc: c@d", "mail_to": ["a@example.org"]},
        {"format": "email", "url": "smtp://mail.example", "mail_from": "a@example.org", "mail_to": ["a b@c"]},
        {
            "format": "email",
            "url": "smtp://me:pw@mail.example",
            "starttls": False,
            "mail_from": "a@example.org",
            "mail_to": ["a@example.org"],
        },
        {"url": "smtp://mail.example"},
        {"mail_to": ["a@example.org"]},
        {"format": "carrier-pigeon"},
        {"secret_env": "A", "secret_file": "/b"},
        {"format": "pagerduty", "old_secret_env": "A"},
    ],
)
def test_settings_that_cannot_be_meant_are_refused_when_they_are_read(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReceiverSettings.model_validate({"name": "a", "url": "https://example.org/", **wrong})


def test_a_receiver_that_does_not_answer_is_tried_by_single_attempts_and_told_at_once_when_it_does(
    tmp_path: Path, receivers: Receivers
) -> None:
    receiver = receivers(*[(500, {})] * 12)
    with posting(tmp_path / "s", settings("webhook", receiver.url)) as post:
        for number in range(12):
            put(post, told(notice(), id=f"msg_{number}", key=f"g{number}"))
        rows = post.outcomes(FAILURES)
        assert {row[2] for row in rows} == {"retry"}
        receiver.script.clear()
        receiver.wait(FAILURES + 12)
        post.outcomes(FAILURES + 12)
        assert {request.id for request in receiver.received} == {f"msg_{number}" for number in range(12)}


def test_the_breaker() -> None:
    breaker = Breaker()
    assert [breaker.failed(0.0, 0.5) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
    assert breaker.is_open and 0.5 <= breaker.not_before <= 1.0
    for _ in range(30):
        breaker.failed(100.0, 0.99)
    assert breaker.not_before <= 130.0, "a receiver that is back is found soon"
    assert breaker.answered() and not breaker.is_open and breaker.not_before == 0.0
    assert not breaker.answered()
    breaker.failed(0.0, 0.5, timedelta(hours=1))
    assert breaker.not_before == 60.0, "no new page waits for longer"


@pytest.mark.parametrize("format", BY_HTTP)
def test_a_test_takes_the_way_that_pages_take(receiver: WebhookReceiver, format: str) -> None:
    tried = list(trial(settings(format, receiver.url), ""))
    assert [(one.told, one.outcome, one.status_code) for one in tried] == [
        ("firing", "delivered", 200),
        ("resolved", "delivered", 200),
    ]
    assert len(receiver.received) == 2


def test_a_test_is_guarded_like_a_page_and_tells_what_went_wrong(
    receivers: Receivers, receiver: WebhookReceiver
) -> None:
    inside = receiver.url.replace("127.0.0.1", "localhost")
    (tried,) = trial(settings("webhook", inside, allow_private=False), "")
    assert (tried.outcome, "not a public address" in (tried.error or "")) == ("refused", True)
    assert receiver.received == []
    (tried,) = trial(settings("webhook", receivers((503, {})).url), "")
    assert (tried.told, tried.outcome, tried.status_code) == ("firing", "retry", 503)


def test_a_mail_is_plain_and_no_label_writes_its_headers() -> None:
    given = {"url": "smtp://mail.example", "mail_from": "sojourn@example.org", "mail_to": ["ops@example.org"]}
    mail = notifier_of(settings("email", **given)).write(told(notice(queue=HOSTILE[2])))
    assert isinstance(mail, Mail)
    head, _, _ = mail.content.partition(b"\r\n\r\n")
    assert b"\r\nBcc:" not in head and b"Message-ID: <msg_1@example.org>" in head
    assert b"Auto-Submitted: auto-generated" in head
