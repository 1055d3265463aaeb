"""A rule that names a policy is evaluated often enough to renew its leases, or refused before anything runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alerts.control.intervals import check_intervals
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.rules.model import Rule
from alerts.settings import AlertSettings
from lake.errors import UserError
from sojourn.cli.main import app

SETTINGS = AlertSettings(control=ControlSettings(policies=(PolicySettings(name="p", lease_seconds=60),)))


def rule(interval: timedelta | None, *actions: str) -> Rule:
    return Rule("tenants", "Noisy", "SELECT 1", interval=interval, actions=actions, source="rules.yml")


def test_a_rule_evaluated_less_often_than_a_lease_lasts_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"rules.yml: tenants / Noisy: evaluated every 2m, but policy 'p' .* 60 s"):
        check_intervals([rule(timedelta(minutes=2), "p")], SETTINGS)
    slow = SETTINGS.model_copy(update={"interval": timedelta(minutes=2)})
    with pytest.raises(UserError, match="2m"):
        check_intervals([rule(None, "p")], slow)


def test_a_rule_that_is_evaluated_in_time_or_names_no_such_policy_is_not() -> None:
    check_intervals(
        [rule(None, "p"), rule(timedelta(minutes=1), "p"), rule(timedelta(hours=1)), rule(timedelta(hours=1), "gone")],
        SETTINGS,
    )


def test_rules_check_refuses_it(tmp_path: Path) -> None:
    text = """
groups:
  - name: tenants
    interval: 5m
    rules:
      - alert: Slow
        expr: SELECT broker, queue, tenant, share AS value FROM tenant_backlog_now WHERE noisy
        actions: [throttle-noisy]
"""
    (tmp_path / "rules.yml").write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, ["rules", "check", str(tmp_path / "rules.yml")])
    assert done.exit_code != 0
    assert "Slow" in f"{done.output}{done.exception}" and "5m" in f"{done.output}{done.exception}"
