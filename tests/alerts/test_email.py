"""E-mail to a real mail server, by the way that pages take."""

from __future__ import annotations

import email
import email.policy
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.notify.settings import ReceiverSettings
from alerts.notify.trial import trial
from tests.alerts.test_notifiers import HOSTILE, notice, put, told
from tests.alerts.test_sender import posting
from tests.support.certificates import Certificates, make_certificates
from tests.support.mail import MailServer, mail_server

TO = ("ops@example.org", "night@example.org")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tls(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's side; senders trust its authority."""
    trusting = ssl.create_default_context(cafile=str(certificates.ca))
    monkeypatch.setattr(httpx, "create_ssl_context", lambda **_: trusting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    return context


@pytest.fixture
def server(tls: ssl.SSLContext) -> Iterator[MailServer]:
    with mail_server(tls) as running:
        yield running


def settings(server: MailServer, scheme: str = "smtp", user: str = "", **more: Any) -> ReceiverSettings:
    given = {
        "name": "pager",
        "format": "email",
        "url": f"{scheme}://{user}127.0.0.1:{server.port}",
        "mail_from": "sojourn@example.org",
        "mail_to": TO,
        "allow_private": True,
    }
    return ReceiverSettings.model_validate(given | more)


def test_a_mail_arrives_encrypted_and_signed_in(
    tmp_path: Path, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "pass:word")
    with posting(tmp_path / "s", settings(server, user="me@", secret_env="MAIL_PASSWORD")) as post:
        put(post, told(notice(tenant=HOSTILE[2])))
        put(post, told(notice(over=True), id="msg_2"))
        assert [row[2:] for row in post.outcomes(2)] == [("delivered", 250)] * 2
    first, second = server.messages
    assert (first.sender, first.recipients, first.login, first.encrypted) == (
        "sojourn@example.org",
        TO,
        "me:pass:word",
        True,
    )
    read = email.message_from_bytes(first.content, policy=email.policy.default)
    assert read["Subject"].startswith("[FIRING:1] QueueStalled nats orders")
    assert read["Bcc"] is None and "Nothing leaves orders" in read.get_content()
    over = email.message_from_bytes(second.content, policy=email.policy.default)
    assert over["Subject"].startswith("[RESOLVED]") and over["References"] == read["References"]
    assert (read["Message-ID"], over["Message-ID"]) == ("<msg_1@example.org>", "<msg_2@example.org>")


def test_it_arrives_at_a_server_that_speaks_tls_from_the_first_byte(tmp_path: Path, tls: ssl.SSLContext) -> None:
    with mail_server(tls, at_once=True) as server:
        (fired, over) = trial(settings(server, "smtps"), "")
        assert (fired.outcome, over.outcome, len(server.messages)) == ("delivered", "delivered", 2)


def test_a_server_that_cannot_encrypt_gets_no_mail_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server(None) as server:
        (tried,) = trial(settings(server, user="me:secret@"), "")
        assert (tried.outcome, server.messages) == ("refused", [])
        assert "AUTH" not in server.seen and "MAIL" not in server.seen
        assert "secret" not in (tried.error or "")
        assert [one.outcome for one in trial(settings(server, starttls=False), "")] == ["delivered", "delivered"]


def test_a_server_whose_certificate_nobody_signed_gets_no_mail(certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    with mail_server(context) as server:
        (tried,) = trial(settings(server), "")
        assert (tried.outcome, server.messages) == ("retry", [])
        assert "ertificate" in (tried.error or "")


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({"CONNECT": "421 busy"}, "retry"),
        ({"MAIL": "451 later"}, "retry"),
        ({"MAIL": "550 no"}, "refused"),
        ({f"RCPT:{TO[0]}": "550 unknown", f"RCPT:{TO[1]}": "550 unknown"}, "refused"),
        ({"DATA": "554 no"}, "refused"),
        ({"AUTH": "535 wrong"}, "refused"),
        ({"EHLO": "nonsense", "HELO": "nonsense"}, "retry"),
    ],
)
def test_what_the_server_answers_decides_whether_it_is_tried_again_soon(
    server: MailServer, answers: dict[str, str], outcome: str
) -> None:
    server.answers.update(answers)
    (tried,) = trial(settings(server, user="me:secret@"), "")
    assert (tried.outcome, server.messages) == (outcome, [])
    assert tried.error and "secret" not in tried.error


def test_one_dead_recipient_takes_no_page_from_the_other(server: MailServer) -> None:
    server.answers[f"RCPT:{TO[0]}"] = "550 unknown"
    fired, _ = trial(settings(server), "")
    assert (fired.outcome, fired.error) == ("delivered", f"not taken for {TO[0]}")
    assert server.messages[0].recipients == (TO[1],)


def test_a_server_that_hangs_holds_nobody_up(tls: ssl.SSLContext) -> None:
    with mail_server(tls, at_once=True) as server:  # which waits for a greeting that does not come
        started = time.monotonic()
        (tried,) = trial(settings(server, timeout="300ms"), "")
        assert tried.outcome == "retry"
        assert time.monotonic() - started < 60, "the timeout is obeyed"


def test_a_mail_server_inside_is_refused_unless_allowed(server: MailServer) -> None:
    inside = settings(server, url=f"smtp://localhost:{server.port}", allow_private=False)
    (tried,) = trial(inside, "")
    assert (tried.outcome, server.seen) == ("refused", [])
