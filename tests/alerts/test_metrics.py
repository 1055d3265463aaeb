"""What the alert process tells of itself is read by the real promtool."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from alerts.engine import Snapshot
from alerts.evaluate import Freshness
from alerts.metrics import SPOKEN, exposition, waiting_in
from alerts.models import AlertInstance, AlertState, RuleEvaluation
from alerts.notify.settings import ReceiverSettings
from alerts.store import OutboxMessage, connect
from tests.support.prometheus import promtool

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def told() -> str:
    labels = {"alertname": "Deep", "severity": 'odd "one"\\\n'}
    alerts = tuple(
        AlertInstance("Deep", "g", labels, {}, 1.0, state, NOW, NOW, f"{number:016x}")
        for number, state in enumerate((AlertState.FIRING, AlertState.KEEP_FIRING, AlertState.PENDING))
    )
    evaluations = (
        RuleEvaluation("Deep", "g", (), NOW, NOW, True, False, None, alerts),
        RuleEvaluation("Bad", "g", (), NOW, NOW, False, False, "no", ()),
    )
    snapshot = Snapshot(NOW - timedelta(seconds=2), Freshness(NOW - timedelta(seconds=3), None, False), evaluations)
    return exposition(snapshot, {("pager", "retry"): 3}, {"pager": 7}, ["pager", "chat"], NOW)


def test_alerts_rules_and_deliveries_are_counted() -> None:
    lines = told().splitlines()
    assert f'alertmanager_build_info{{version="{SPOKEN}"}} 1' in lines, "without it Karma does not attach"
    for line in (
        'sojourn_alerts_alerts{severity="odd \\"one\\"\\\\\\n",state="firing"} 2',
        'sojourn_alerts_rules{state="failing"} 1',
        "sojourn_alerts_last_round_age_seconds 2",
        "sojourn_alerts_data_age_seconds 3",
        'sojourn_alerts_notifications_waiting{receiver="pager"} 7',
        'sojourn_alerts_attempts_total{receiver="pager",outcome="retry"} 3',
        'sojourn_alerts_attempts_total{receiver="chat",outcome="delivered"} 0',
    ):
        assert line in lines


def test_promtool_finds_nothing_to_say_of_it() -> None:
    ran = subprocess.run([promtool(), "check", "metrics"], input=told(), capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_what_waits_is_read_from_the_store_and_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "alerts #1.sqlite"
    assert waiting_in(path) == {}
    database = connect(path)
    OutboxMessage("msg", "pager", "g", "firing", 1, "{}", NOW, None).insert(database)
    assert waiting_in(path) == {"pager": 1}
    database.close()


def test_a_url_that_is_a_secret_comes_from_the_environment_or_a_file_and_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "https://hooks.example.org/services/T0/B0/s3cret"
    monkeypatch.setenv("HOOK", f"{secret}\n")
    (tmp_path / "url").write_text(f" {secret}\n")
    for given in ({"url_env": "HOOK"}, {"url_file": str(tmp_path / "url")}):
        settings = ReceiverSettings.model_validate({"name": "chat", "format": "slack", **given})
        assert settings.url == secret
        assert "s3cret" not in repr(settings)
    for wrong, why in (
        ({"url_env": "NOT_THERE"}, "NOT_THERE is not set"),
        ({"url_file": str(tmp_path / "none")}, "cannot read"),
        ({"url_env": "HOOK", "url": "https://example.org"}, "not both"),
    ):
        with pytest.raises(ValidationError, match=why):
            ReceiverSettings.model_validate({"name": "chat", **wrong})
    monkeypatch.setenv("HOOK", "https://hooks.example.org:99999/s3cret")
    with pytest.raises(ValidationError) as refused:
        ReceiverSettings.model_validate({"name": "chat", "url_env": "HOOK"})
    assert "s3cret" not in str(refused.value.errors(include_input=False))
