from __future__ import annotations

import base64
import socket
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
from alerts.store import Outbox, OutboxMessage, connect
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
        message = OutboxMessage(
            id, receiver, group, "firing", 1, f'{{"said":"{id}"}}', datetime.now(UTC), datetime.now(UTC)
        )
        with transaction(self.db):
            message.insert(self.db)
        self.sender.wake()

    def skip_the_pause(self) -> None:
        """As if the time had come at which everything is tried again."""
        self.db.execute("UPDATE outbox SET next_at = 0")
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


def test_a_webhook_is_signed_and_arrives(path: Path, receiver: WebhookReceiver) -> None:
    with posting(path, to(receiver)) as post:
        post.put("msg_1")
        (request,) = receiver.wait(1)
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


def test_a_body_that_is_refused_is_not_repeated(path: Path, receivers: Receivers) -> None:
    receiver = receivers((400, {}))
    with posting(path, to(receiver)) as post:
        post.put("msg_1")
        assert post.outcomes(1) == [("msg_1", 1, "refused", 400)]
        assert Outbox(post.db).waiting() == 0


@pytest.mark.parametrize("status", [301, 401, 403, 404])
def test_a_page_that_is_refused_is_kept_and_told_once_somebody_has_mended_the_receiver(
    path: Path, receivers: Receivers, status: int
) -> None:
    receiver = receivers((status, {}))
    with posting(path, to(receiver)) as post:
        post.put("msg_1")
        assert post.outcomes(1) == [("msg_1", 1, "refused", status)]
        next_at = Outbox(post.db).next_at("pager")
        assert next_at is not None
        assert next_at > datetime.now(UTC) + timedelta(seconds=10), "a refusal is repeated slowly"
        post.skip_the_pause()
        assert [request.id for request in receiver.wait(2)] == ["msg_1", "msg_1"]
        assert post.outcomes(2)[1:] == [("msg_1", 2, "delivered", 200)]


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


def test_150_groups_due_for_a_hanging_receiver_starve_no_other(path: Path, receivers: Receivers) -> None:
    hanging, healthy = receivers(hold=60.0), receivers()
    db = connect(path)
    with transaction(db):
        for number in range(150):
            message = OutboxMessage(
                f"hang_{number}", "hanging", f"g{number}", "firing", 1, "{}", datetime.now(UTC), None
            )
            message.insert(db)
    with posting(path, to(hanging, name="hanging", timeout="5m"), to(healthy, name="healthy")) as post:
        hanging.wait(4)
        for number in range(150):
            post.put(f"msg_{number}", "healthy", f"g{number}")
        healthy.wait(150)
        assert len(post.outcomes(150)) == 150
        assert len(hanging.received) == 4, "a receiver has at most four requests at a time"


@pytest.mark.parametrize(
    "answer",
    [{"retry-after": "²"}, {"retry-after": "9" * 5000}, {"retry-after": "Thu, 01 Jan 99999999999 00:00:00 GMT"}],
    ids=["superscript", "5000 digits", "a year too far"],
)
def test_an_answer_that_makes_no_sense_is_a_failure_like_any_other(
    path: Path, receivers: Receivers, answer: dict[str, str]
) -> None:
    receiver = receivers((503, answer))
    with posting(path, to(receiver)) as post:
        post.put("msg_1")
        assert post.outcomes(1) == [("msg_1", 1, "retry", 503)]
        post.skip_the_pause()
        assert post.outcomes(2)[1:] == [("msg_1", 2, "delivered", 200)]


@pytest.mark.parametrize("error", [ValueError("a port"), UnicodeError("label too long"), RuntimeError(), MemoryError()])
def test_whatever_an_attempt_raises_is_recorded_and_tried_again_with_pauses(
    path: Path, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def look_up(*_: object, **__: object) -> list[Any]:
        raise error

    url = receiver.url.replace("127.0.0.1", "hooks.example")
    monkeypatch.setattr("alerts.notify.guard.socket.getaddrinfo", look_up)
    with posting(path, to(receiver, url=url)) as post:
        post.put("msg_1")
        assert post.outcomes(1)[0] == ("msg_1", 1, "retry", None)
        assert post.db.execute("SELECT error FROM deliveries").fetchone()[0].startswith(type(error).__name__)
        assert len(post.outcomes(2)) < 20, "it is tried again with pauses"


def test_what_cannot_be_written_down_is_not_repeated_without_pause(
    path: Path, receiver: WebhookReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    with posting(path, to(receiver)) as post:
        post.db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON deliveries BEGIN SELECT RAISE(ABORT, 'no space is left'); END"
        )
        post.put("msg_1")
        receiver.wait(2)
        assert len(receiver.received) < 20, "it is tried again with pauses"
        assert "could not be recorded: IntegrityError: no space is left" in caplog.text
        post.db.execute("DROP TRIGGER full")
        assert post.outcomes(1)[0][2:] == ("delivered", 200)


def test_a_password_in_the_url_is_percent_decoded(path: Path, receiver: WebhookReceiver) -> None:
    url = receiver.url.replace("http://", "http://us%40er:p%2Fw%C3%A9@")
    with posting(path, to(receiver, url=url)) as post:
        post.put("msg_1")
        (request,) = receiver.wait(1)
    known = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    assert (known, request.headers["host"]) == ("us@er:p/wé", receiver.url.split("/")[2])


def test_the_address_that_was_checked_is_the_one_connected_to(
    path: Path, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that gives another answer to the second question: nobody asks it."""
    port, asked = int(receiver.url.split(":")[2].split("/")[0]), []

    def look_up(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "192.0.2.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr("alerts.notify.guard.socket.getaddrinfo", look_up)
    with posting(path, to(receiver, url=f"http://rebinding.example:{port}/hook")) as post:
        post.put("msg_1")
        (request,) = receiver.wait(1)
    assert (request.headers["host"], asked[0]) == (f"rebinding.example:{port}", "rebinding.example")
    assert asked.count("rebinding.example") == 1


def test_an_answer_that_does_not_come_in_time_is_a_failure_that_is_retried(path: Path, receivers: Receivers) -> None:
    receiver = receivers(hold=1.0)
    with posting(path, to(receiver, timeout="200ms")) as post:
        post.put("msg_1")
        (outcome, *_) = post.outcomes(1)
        assert outcome[2:] == ("retry", None)


def test_what_an_earlier_process_left_is_sent_first(path: Path, receiver: WebhookReceiver) -> None:
    db = connect(path)
    with transaction(db):
        OutboxMessage("msg_old", "pager", "g", "firing", 1, "{}", datetime.now(UTC), None).insert(db)
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
