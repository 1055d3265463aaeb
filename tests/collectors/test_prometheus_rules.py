"""The rules and the dashboard for Prometheus and Grafana: read by the real promtool, of metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.grafana import faults
from tests.support.prometheus import promtool

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "sojourn.rules.yml"
METRICS = re.compile(r"\bsojourn_[a-z_]+")


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "queues.json").read_text())
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in board()["panels"] for target in panel["targets"]]


def run(*arguments: str | Path) -> None:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_reads_the_rules_and_their_tests_pass() -> None:
    run("check", "rules", RULES)
    run("test", "rules", RULES.with_name("sojourn.rules.test.yml"))


def test_promtool_reads_what_the_dashboard_asks(tmp_path: Path) -> None:
    records = [{"record": f"panel:{place}", "expr": expr} for place, expr in enumerate(expressions())]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))
    run("check", "rules", tmp_path / "panels.yml")


@pytest.mark.parametrize("text", [RULES.read_text(), *expressions()])
def test_every_metric_is_one_that_collectors_tell(text: str) -> None:
    documented = (DEPLOY.parent / "docs" / "metrics.md").read_text()
    known = {*METRICS.findall(documented), "sojourn_queue_info"}
    assert set(METRICS.findall(text)) <= known


def test_no_panel_lies_on_another_and_each_says_what_it_shows() -> None:
    panels = board()["panels"]
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(places)) == len(panels) and all(panel["description"] and panel["title"] for panel in panels)
    assert all(one["datasource"]["uid"] == "${datasource}" for one in panels)


#: What Grafana itself writes, and its published models leave out: a variable's query once more, as its editor shows it,
#: and what is written on a mark of Prometheus' alerts.
UNMODELLED = {
    *(f"/templating/list/{place}/definition is unknown" for place in (1, 2)),
    "/annotations/list/0/titleFormat is unknown",
}


def test_the_dashboard_is_of_grafanas_published_models() -> None:
    assert set(faults(board())) == UNMODELLED


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (("panels", 0, "titel"), "Waiting"),
        (("panels", 0, "gridPos", "w"), "wide"),
        (("panels", 0, "options", "legend", "displayMode"), "tabel"),
        (("panels", 0, "fieldConfig", "defaults", "custom"), {"fillOpaqueness": 10}),
        (("panels", 0, "targets", 0, "legend"), "{{queue}}"),
        (("schemaVersion",), "39"),
    ],
)
def test_what_grafana_does_not_know_is_found(where: tuple[str | int, ...], what: object) -> None:
    wrong: Any = board()
    *way, name = where
    place = wrong
    for step in way:
        place = place[step]
    place[name] = what
    found = set(faults(wrong)) - UNMODELLED
    assert len(found) == 1, found
