from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from alerts.notify.sender import Sender
from alerts.settings import ReceiverSettings
from alerts.store import Outbox, Parcel, connect
from alerts.store.database import transaction
from lake.errors import UserError
from tests.alerts.helpers import SECRET, WebhookReceiver
from tests.support.waiting import PATIENCE

Receivers = Callable[..., WebhookReceiver]


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


def to(receiver: WebhookReceiver, **more: Any) -> ReceiverSettings:
    settings = {"name": "pager", "url": receiver.url, "secret_env": "HOOK_SECRET", "allow_private": True, **more}
    return ReceiverSettings.model_validate(settings)


class Post:
    """An outbox with a running sender."""

    def __init__(self, path: Path, sender: Sender) -> None:
        self.db = connect(path)
        self.sender = sender

    def put(self, id: str, receiver: str = "pager", group: str = "g") -> None:
        parcel = Parcel(id, receiver, group, "firing", 1, f'{{"said":"{id}"}}', datetime.now(UTC), datetime.now(UTC))
        with transaction(self.db):
            parcel.insert(self.db)
        self.sender.wake()

    def outcomes(self, count: int, timeout: float = 10) -> list[tuple[str, int, str, int | None]]:
        deadline = time.monotonic() + PATIENCE * timeout
        while True:
            rows = self.db.execute("SELECT delivery_id, attempt, outcome, status_code FROM deliveries").fetchall()
            if len(rows) >= count:
                return rows
            assert time.monotonic() < deadline, f"only {rows}"
            time.sleep(0.01)


@contextmanager
def posting(path: Path, *receivers: ReceiverSettings) -> Iterator[Post]:
    sender = Sender(path, receivers)
    sender.start()
    try:
        yield Post(path, sender)
    finally:
        sender.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alerts.sqlite"


def test_a_webhook_is_signed_and_arrives_at_once(path: Path, receiver: WebhookReceiver) -> None:
    with posting(path, to(receiver)) as post:
        started = time.monotonic()
        post.put("msg_1")
        (request,) = receiver.wait(1)
        assert time.monotonic() - started < 1
        assert request.payload == {"said": "msg_1"}
        assert (request.id, request.headers["content-type"]) == ("msg_1", "application/json")
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(request.body + b" ", request.headers)
        assert post.outcomes(1) == [("msg_1", 1, "delivered", 200)]
        assert Outbox(post.db).waiting() == 0


def test_a_failure_is_retried_with_the_same_id_and_a_later_message_of_the_group_waits(
    path: Path, receivers: Receivers
) -> None:
    receiver = receivers((500, {}), (429, {"retry-after": "1"}))
    with posting(path, to(receiver)) as post:
        post.put("msg_1")
        post.put("msg_2")
        requests = receiver.wait(4)
        assert [request.id for request in requests] == ["msg_1", "msg_1", "msg_1", "msg_2"]
        assert all(request.payload for request in requests)
        assert requests[2].at - requests[1].at >= timedelta(seconds=1), "Retry-After was not honoured"
        assert [outcome[1:] for outcome in post.outcomes(4)] == [
            (1, "retry", 500),
            (2, "retry", 429),
            (3, "delivered", 200),
            (1, "delivered", 200),
        ]


def test_a_request_that_can_never_succeed_is_not_repeated(path: Path, receivers: Receivers) -> None:
    receiver = receivers((404, {}))
    with posting(path, to(receiver)) as post:
        post.put("msg_1")
        assert post.outcomes(1) == [("msg_1", 1, "refused", 404)]
        assert Outbox(post.db).waiting() == 0


def test_redirects_are_not_followed(path: Path, receivers: Receivers, receiver: WebhookReceiver) -> None:
    redirecting = receivers((307, {"location": receiver.url}))
    with posting(path, to(redirecting)) as post:
        post.put("msg_1")
        assert post.outcomes(1) == [("msg_1", 1, "refused", 307)]
        assert receiver.received == []


def test_410_disables_a_receiver_until_its_url_changes(path: Path, receivers: Receivers) -> None:
    gone, moved = receivers((410, {})), receivers()
    with posting(path, to(gone)) as post:
        post.put("msg_1")
        post.outcomes(1)
        post.put("msg_2")
        assert [outcome[2:] for outcome in post.outcomes(2)] == [("refused", 410), ("refused", None)]
        assert len(gone.received) == 1
    with posting(path, to(moved)) as post:
        post.put("msg_3")
        assert moved.wait(1)[0].id == "msg_3"


def test_private_addresses_are_refused_unless_allowed(path: Path, receiver: WebhookReceiver) -> None:
    port = receiver.url.split(":")[2]
    with posting(path, to(receiver, allow_private=False, url=f"http://localhost:{port}")) as post:
        post.put("msg_1")
        assert post.outcomes(1) == [("msg_1", 1, "refused", None)]
        assert receiver.received == []


def test_a_slow_receiver_delays_no_other(path: Path, receivers: Receivers) -> None:
    slow, quick = receivers(hold=3.0), receivers()
    with posting(path, to(slow, name="slow"), to(quick, name="quick")) as post:
        for number in range(8):
            post.put(f"msg_slow_{number}", "slow", f"g{number}")
        started = time.monotonic()
        post.put("msg_quick", "quick")
        quick.wait(1)
        assert time.monotonic() - started < 1


def test_an_answer_that_does_not_come_in_time_is_a_failure_that_is_retried(path: Path, receivers: Receivers) -> None:
    receiver = receivers(hold=1.0)
    with posting(path, to(receiver, timeout="200ms")) as post:
        post.put("msg_1")
        (outcome, *_) = post.outcomes(1)
        assert outcome[2:] == ("retry", None)


def test_what_an_earlier_process_left_is_sent_first(path: Path, receiver: WebhookReceiver) -> None:
    db = connect(path)
    with transaction(db):
        Parcel("msg_old", "pager", "g", "firing", 1, "{}", datetime.now(UTC), None).insert(db)
    with posting(path, to(receiver)):
        assert receiver.wait(1)[0].id == "msg_old"


def test_a_key_that_is_not_one_is_a_clear_error(
    path: Path, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "whsec_%%%")
    with pytest.raises(UserError, match="signing key is not valid") as caught:
        Sender(path, [to(receiver)])
    assert "%%%" not in str(caught.value)
    monkeypatch.delenv("HOOK_SECRET")
    with pytest.raises(UserError, match="HOOK_SECRET is not set"):
        Sender(path, [to(receiver)])
