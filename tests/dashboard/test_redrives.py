"""Dead letters brought back from their page: the command as it stands, who may, and what the journal tells of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.pages import confirm
from dashboard.redrives import Redrive, start
from dashboard.run import CONFIG_VARIABLE
from dashboard.services.keys import QueueKey
from dashboard.services.redrives import redrives, sources
from dashboard.writes import changes
from lake.errors import UserError
from tests.dashboard.scene import BROKER, write_story
from tests.dashboard.test_pages import AGES, opened, words
from tests.dashboard.troubles import QUEUE, write_troubles
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
KEY = QueueKey("nats", "invoices")


def test_names_from_a_broker_are_values_and_never_options_of_the_command() -> None:
    hostile = Redrive("--lake=/", "-x; rm -rf /", "$(id)", tenant="--rate=9", subject="a b")
    assert hostile.arguments()[2:] == [
        *("--broker=--lake=/", "--rate=10", "--canary=10", "--tenant=--rate=9", "--subject=a b"),
        *("--", "-x; rm -rf /", "$(id)"),
    ]
    assert hostile.command().endswith("'--subject=a b' -- '-x; rm -rf /' '$(id)'")


def test_the_page_shows_the_command_and_without_a_settings_file_no_button(
    troubled: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(troubled, stale_after_seconds=AGES)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    app = opened("dead_letters")
    assert app.code[0].value.startswith("sojourn redrive start --broker=nats --rate=10 --canary=10 -- ")
    assert "started without a settings file" in words(app)
    monkeypatch.setenv(CONFIG_VARIABLE, str(troubled / "sojourn.toml"))
    again = opened("dead_letters")
    assert "start a canary" in " ".join(button.label for button in again.button)


def test_what_the_command_refuses_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "sojourn.toml"
    settings.write_text("[lake]\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(settings))
    with pytest.raises(UserError, match=r"\[\[collect.brokers\]\] has no broker 'nats'"):
        start(tmp_path, Redrive("nats", "dead", "orders"))


def test_of_several_rows_of_a_redrive_the_newest_is_told() -> None:
    def row(minutes: int, moved: str, **more: Any) -> dict[str, Any]:
        inputs = [("moved", moved), ("died", "0"), ("source", "dead")]
        told = {"at": NOW - timedelta(minutes=minutes), "action_id": "r1", "policy": "redrive", "broker": "nats"}
        return told | {"queue": "invoices", "tenant": None, "after": 10.0, "inputs": inputs, "reason": "why"} | more

    rows = [row(1, "30", after=None), row(3, "10"), row(2, "1", queue="other"), row(2, "1", policy="cap")]
    (one,) = redrives(rows, KEY, NOW)
    assert one.over and one.cells == ("over", "30", "0", "dead", "02:59:00 UTC, 1 min ago", "why")


def test_a_queues_dead_letter_queues_are_those_that_say_so() -> None:
    def told(queue: str, serves: str | None, depth: int | None) -> dict[str, Any]:
        return {"broker": "nats", "queue": queue, "depth": depth, "dead_letter_for": serves}

    rows = [
        told("a", "invoices", None),
        told("b", "orders, invoices", 4),
        told("c", "invoices2", 9),
        told("d", None, 1),
    ]
    assert sources(rows, KEY) == {"b": 4, "a": None}


def test_a_canary_is_started_and_cancelled_from_the_page_on_a_real_broker(
    tmp_path: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    write_story(root, end=datetime.now(UTC), seconds=60, noisy_from=50)
    write_troubles(root, end=datetime.now(UTC))
    show(root, stale_after_seconds=AGES)
    monkeypatch.chdir(Path(__file__).parents[2])
    with RedisServer(tmp_path / "redis") as server, server.client(decode_responses=True) as client:
        for number in range(6):
            client.xadd(f"{QUEUE}.dlq", {"tenant": "birch", "number": number})
        settings = tmp_path / "sojourn.toml"
        settings.write_text(f'[[collect.brokers]]\nkind = "redis"\nname = "{BROKER}"\nurl = "{server.url}"\n')
        monkeypatch.setenv(CONFIG_VARIABLE, str(settings))

        app = opened("dead_letters")
        app.number_input(key=f"redrive canary {BROKER}/{QUEUE}").set_value(2)
        pressed(app, "start a canary")
        assert "Done: Start a canary" in words(app) and "Done: Start a canary" in words(app.run()), "renewed meanwhile"
        later = monotonic() + confirm.TOLD_SECONDS
        with monkeypatch.context() as clock:
            clock.setattr(confirm, "monotonic", lambda: later)
            assert "Done: " not in words(app.run())
        wait_until(lambda: client.xlen(QUEUE) == 2, "the canary")
        assert [fields["number"] for _, fields in client.xrange(QUEUE)] == ["0", "1"]

        wait_until(lambda: "canary" in words(opened("dead_letters")).partition("Redrive")[2], "the redrive on the page")
        app = opened("dead_letters")
        pressed(app, "cancel ")
        assert "Done: Cancel" in words(app)
        wait_until(lambda: "cancelled" in words(opened("dead_letters")), "its end on the page")
        assert client.xlen(QUEUE) == 2 and client.xlen(f"{QUEUE}.dlq") == 4
    asked = [(one.what, one.outcome) for one in changes(root, 10)]
    assert asked == [
        ("cancel redrive", "done"),
        ("cancel redrive", "asked"),
        ("redrive", "done"),
        ("redrive", "asked"),
    ]


def pressed(app: AppTest, label: str) -> None:
    (button,) = (one for one in app.button if label in one.label)
    button.click().run()
