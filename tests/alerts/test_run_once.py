from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.run import run
from alerts.settings import AlertSettings
from lake.errors import UserError
from lake.reader import Reader
from tests.alerts.helpers import SECRET, GoldLake, WebhookReceiver


def settings(receiver: WebhookReceiver | None = None, **more: Any) -> AlertSettings:
    known = {"name": "pager", "secret_env": "HOOK_SECRET", "allow_private": True}
    receivers = [{**known, "url": receiver.url}] if receiver else []
    return AlertSettings.model_validate({"port": 0, "receivers": receivers, **more})


def test_once_evaluates_delivers_and_writes_history_before_it_returns(
    gold: GoldLake, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    gold.partial(dead_lettered=3, received=3)
    run(settings(receiver), gold.root, threading.Event(), once=True)
    (request,) = receiver.received
    assert request.payload["commonLabels"]["alertname"] == "DeadLetters"
    reader = Reader(gold.root)
    fired = reader.query("SELECT rule FROM alert_states WHERE state = 'firing' ORDER BY rule").to_pylist()
    assert [row["rule"] for row in fired] == ["DeadLetters", "Watchdog"]
    assert reader.query("SELECT outcome FROM deliveries").to_pylist() == [{"outcome": "delivered"}]


def test_a_port_that_is_taken_is_one_clear_error(gold: GoldLake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1:{port}"):
            run(settings(port=port), gold.root, threading.Event(), once=True)


def test_a_store_that_is_not_one_is_one_clear_error(gold: GoldLake) -> None:
    path = gold.root / "state" / "alerts.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("this is no database, " * 100)
    with pytest.raises(UserError, match=r"alerts\.sqlite cannot be used"):
        run(settings(), gold.root, threading.Event(), once=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"receivers": [{"name": "a", "url": "ftp://example.org"}]}, "http"),
        ({"receivers": [{"name": "a", "url": "http://a"}, {"name": "a", "url": "http://b"}]}, "same name"),
        ({"route": {"watchdog": "nobody"}}, "not a receiver"),
        ({"interval": "often"}, "not a duration"),
        ({"recievers": []}, "Extra inputs"),
        ({"receivers": [{"name": "a", "url": "http://a", "secret_env": "X", "secret_file": "y"}]}, "not both"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AlertSettings.model_validate(wrong)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://hooks.example:99999/", "port 99999"),
        ("http://hooks.example:0/", "port 0"),
        ("http://hooks.example:x/", "cannot be parsed"),
        (f"https://{'a' * 70}.example/", "at most 63"),
        (f"https://{'ü' * 70}.example/", "cannot be parsed"),
        (f"https://{'a.' * 130}example/", "not a name"),
        ("https://hooks..example/", "not a name"),
        ("https://-hooks.example/", "not a name"),
        ("https://hooks.example/\x7f", "control character"),
        ("https://hooks.example/a b", "space"),
        ("https://hooks.example\\@evil.example/", "backslash"),
        ("https://hooks.example/\ud800", "cannot be parsed"),
        ("https://[fe80::1%25eth0]/", "brackets|zone"),
        ("https://[::1/", "cannot be parsed"),
        ("https:///path", "names a host"),
        (f"https://hooks.example/{'x' * 5000}", "longer than"),
        ("http://127.0.0.1/", "not a public address"),
        ("http://[::ffff:169.254.169.254]/", "not a public address"),
        ("http://2130706433/", "four decimal numbers"),
        ("http://0x7f.0.0.1/", "four decimal numbers"),
        ("http://0177.0.0.1/", "cannot be parsed"),
        ("http://127.1/", "four decimal numbers"),
    ],
)
def test_a_url_that_nobody_can_send_to_is_refused_when_it_is_read(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        AlertSettings.model_validate({"receivers": [{"name": "a", "url": url}]})
    (error,) = caught.value.errors()
    assert "\n" not in error["msg"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://127.1/", "http://[::1]:8/hook?key=1"])
def test_a_private_address_may_be_allowed(url: str) -> None:
    AlertSettings.model_validate({"receivers": [{"name": "a", "url": url, "allow_private": True}]})


@pytest.mark.parametrize("timeout", ["0", "6m", "999999999999999999y"])
def test_a_timeout_that_cannot_be_meant_is_refused(timeout: str) -> None:
    with pytest.raises(ValidationError, match=r"timeout|100 years"):
        AlertSettings.model_validate({"receivers": [{"name": "a", "url": "http://a", "timeout": timeout}]})


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET + "\n")
    receiver = {"name": "a", "url": "https://example.org", "secret_file": str(tmp_path / "key")}
    (one,) = AlertSettings.model_validate({"receivers": [receiver]}).receivers
    assert one.secret() == SECRET
    (tmp_path / "key").unlink()
    with pytest.raises(UserError, match="cannot read"):
        one.secret()


def test_a_group_of_rules_cannot_be_called_as_other_programs_alerts_are(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text("groups: [{name: (received), rules: [{alert: A, expr: SELECT 1 AS value}]}]")
    with pytest.raises(UserError, match="received"):
        run(AlertSettings(rules=(rules,)), tmp_path / "lake", threading.Event(), once=True)
