"""`sojourn rules check --lake` tells what rules make of a lake: labels, series, and what would be an error."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alerts.check import check
from alerts.settings import AlertSettings
from alerts.survey import described, survey
from sojourn.cli.main import app
from tests.alerts.helpers import GoldLake

FILE = """
groups:
  - name: mine
    limit: 3
    labels: {team: payments}
    rules:
      - alert: EachTenant
        expr: SELECT broker, queue, subscriber, tenant, backlog AS value FROM tenant_backlog_now
      - alert: None
        expr: SELECT queue, depth AS value FROM queue_health_now WHERE depth > 1000000
      - alert: TooMany
        expr: SELECT t.tenant, u.tenant AS other, 1 AS value FROM tenant_backlog_now AS t, tenant_backlog_now AS u
      - alert: Twice
        expr: SELECT 'q' AS queue, 1 AS value FROM tenant_backlog_now
      - alert: History
        expr: SELECT DISTINCT queue, 1 AS value FROM tenant_backlog
      - alert: Text
        expr: SELECT queue, tenant AS value FROM tenant_backlog_now
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> GoldLake:
    gold = GoldLake(tmp_path_factory.mktemp("survey") / "lake")
    for tenant in ("acme", "grove"):
        gold.partial(tenant=tenant, at=datetime(2026, 1, 1, tzinfo=UTC), enqueued=3)
    return gold


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "mine.yml"
    path.write_text(FILE)
    return path


def test_each_rule_tells_its_series_its_labels_and_its_errors(lake: GoldLake, rules: Path) -> None:
    found = survey(check([rules], builtin=False), lake.root, AlertSettings())
    told = {one.rule.name: (one.count, dict(one.labels), one.problem) for one in found.series}
    assert found.at == datetime(2026, 1, 1, tzinfo=UTC)
    assert told == {
        "EachTenant": (2, {"broker": 1, "queue": 1, "subscriber": 0, "tenant": 2}, None),
        "None": (0, {"queue": 0}, None),
        "TooMany": (4, {"tenant": 2, "other": 2}, "more than its limit of 3"),
        "Twice": (2, {"queue": 1}, "two rows have the same labels"),
        "History": (1, {"queue": 1}, None),
        "Text": (0, {}, "value must be a number, but is string"),
    }
    assert " ".join(described(found)[2].split()) == "TooMany 4 tenant (2), other (2) ✗ more than its limit of 3"


def test_the_command_fails_where_a_rule_would_and_all_shipped_ones_do_not(lake: GoldLake, rules: Path) -> None:
    run = CliRunner().invoke
    failed = run(app, ["rules", "check", str(rules), "--lake", str(lake.root)])
    assert (failed.exit_code, "6 rules, all valid" in failed.output) == (1, True)
    shipped = run(app, ["rules", "check", "--lake", str(lake.root)])
    assert shipped.exit_code == 0, shipped.output
    assert "QueueStalled" in shipped.output
    assert "over the lake" not in run(app, ["rules", "check", str(rules)]).output
