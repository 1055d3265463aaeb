"""``sojourn alerts explain``: the recorded reasons, for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.explain import explain, journal
from alerts.settings import AlertSettings
from lake.errors import UserError
from tests.alerts.helpers import GoldLake
from tests.alerts.test_engine import SETTINGS
from tests.alerts.test_given import MINUTE, NOW, OPS, Told, silence

OTHERS = [{"name": name, "url": "https://example.org/"} for name in ("pager", "chat", "outside")]
ROUTED = AlertSettings.model_validate(
    {
        "receivers": [*OTHERS, {**OTHERS[0], "name": "mails", "match": {"queue": "mails"}}],
        "route": {
            "watchdog": "outside",
            "routes": [{"matchers": ['severity="critical"'], "receivers": ["chat"]}],
            "receivers": ["pager", "mails"],
        },
    }
)


def test_every_decision_is_explained_with_its_reason(gold: GoldLake) -> None:
    told = Told(gold)
    id = told.state.silence(silence("tenant=acme", ends=10 * MINUTE), OPS, NOW, NOW)
    told.at(MINUTE, dead_lettered=1)
    (alert,) = told.world.engine.snapshot.firing()
    store = gold.lake.state_path("alerts.sqlite")
    lines = "\n".join(explain(store, SETTINGS, alert.fingerprint[:6], NOW + MINUTE))
    assert f"Dead {alert.fingerprint}" in lines
    assert 'tenant="acme"' in lines and "firing since 2026-01-01T12:01:00" in lines
    assert f"held      silenced by ops (deploy), {id}" in lines
    assert 'pager: in the group {}:{alertname="Dead", broker="nats", queue="orders"}' in lines
    assert "was not told that it fires" in lines
    assert "every alert that it would be told of is silenced [this alert: silenced by ops (deploy)" in lines
    told.at(11 * MINUTE)
    lines = "\n".join(explain(store, SETTINGS, alert.fingerprint, NOW + 11 * MINUTE))
    assert "held  " not in lines
    assert "sent (1 firing, 0 resolved): first notification of this group" in lines
    assert "(firing) is not delivered yet, after 0 attempts" in lines
    assert journal(store, 5) == [f'2026-01-01T12:00:00.000000Z ops (127.0.0.1) silence {id} tenant="acme"; deploy']


def test_who_is_not_told_is_explained_too(gold: GoldLake) -> None:
    told = Told(gold)
    told.at(0 * MINUTE, dead_lettered=1)
    (alert,) = told.world.engine.snapshot.firing()
    lines = explain(gold.lake.state_path("alerts.sqlite"), ROUTED, alert.fingerprint, NOW)
    assert "  chat: not told: the alert takes the route {}" in lines
    assert "  outside: not told: it hears of the watchdog alone" in lines
    assert "  mails: not told: its match asks for queue=mails" in lines


def test_an_alert_that_is_not_there_is_a_clear_error(gold: GoldLake, tmp_path: Path) -> None:
    store = gold.lake.state_path("alerts.sqlite")
    with pytest.raises(UserError, match="is not there"):
        explain(tmp_path / "none", SETTINGS, "ab", NOW)
    Told(gold)
    for wanted in ("", "ffff", "%"):
        with pytest.raises(UserError, match="no alert"):
            explain(store, SETTINGS, wanted, NOW)
