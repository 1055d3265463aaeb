"""Test files in promtool's schema: read as promtool reads them, and judged alike by the real one."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.check import test as run_tests
from alerts.promtool import STALE, InputSeries, samples, series_of
from lake.errors import UserError
from tests.support.prometheus import promtool

RULES = """
groups:
  - name: mine
    rules:
      - alert: Deep
        expr: {deep}
        for: 2m
        keep_firing_for: {keep}
        labels: {{severity: critical}}
        annotations: {{summary: "{labels}.queue }}}} is deep"}}
      - alert: Busy
        expr: {busy}
"""
OURS = RULES.format(
    deep="SELECT broker, queue, depth AS value FROM queue_health_now WHERE depth > 50",
    busy="SELECT queue, in_flight AS value FROM queue_health_now WHERE in_flight > 0.5 * depth",
    keep="0s",
    labels="{{ labels",
)
THEIRS = RULES.format(
    deep="queue_health_now:depth > 50",
    busy="sum by (queue) (queue_health_now:in_flight) > 0.5 * sum by (queue) (queue_health_now:depth)",
    keep="0s",
    labels="{{ $labels",
).replace("        keep_firing_for: 0s\n", "")

ORDERS = 'queue_health_now:depth{broker="nats",queue="orders"}'
#: Series of one column or two, and what fires when: eval_time, alertname, queues.
STORIES: dict[str, tuple[dict[str, str], list[tuple[str, str, list[str]]]]] = {
    "it is pending, fires, and is over": (
        {ORDERS: "75 85 70 70 10 10 10"},
        [("1m", "Deep", []), ("2m", "Deep", ["orders"]), ("3m", "Deep", ["orders"]), ("4m", "Deep", [])],
    ),
    "what never fired ends without a word": ({ORDERS: "75 10x8"}, [("0m", "Deep", []), ("5m", "Deep", [])]),
    "a gap is bridged for less than five minutes": (
        {ORDERS: "75 _x3 75 _x20"},
        [("3m", "Deep", ["orders"]), ("8m", "Deep", ["orders"]), ("10m", "Deep", [])],
    ),
    "a series that is stale ends at once": ({ORDERS: "75x3 stale"}, [("3m", "Deep", ["orders"]), ("4m", "Deep", [])]),
    "steps up and down": (
        {ORDERS: "0+20x6 100-30x3", 'queue_health_now:depth{broker="nats",queue="mail"}': "1e2x9"},
        [("4m", "Deep", ["mail"]), ("5m", "Deep", ["mail", "orders"]), ("9m", "Deep", ["mail"])],
    ),
    "between two evaluations the last one counts": (
        {ORDERS: "75x9"},
        [("119s", "Deep", []), ("179s", "Deep", ["orders"])],
    ),
    "two columns of one row, fractions and negatives": (
        {ORDERS: "10 10 10", 'queue_health_now:in_flight{broker="nats",queue="orders"}': "-1 5 6"},
        [("0m", "Busy", []), ("1m", "Busy", []), ("2m", "Busy", ["orders"])],
    ),
}


def alert(name: str, queue: str) -> dict[str, Any]:
    """An alert as expected."""
    if name == "Busy":
        return {"exp_labels": {"queue": queue}}
    return {
        "exp_labels": {"severity": "critical", "broker": "nats", "queue": queue},
        "exp_annotations": {"summary": f"{queue} is deep"},
    }


def written(folder: Path, story: str, *, wrong: bool = False) -> tuple[Path, Path]:
    """The story for us and for promtool: the same test file beside rules in either language."""
    series, expected = STORIES[story]
    expectations = [
        {"eval_time": at, "alertname": name, "exp_alerts": [alert(name, queue) for queue in queues]}
        for at, name, queues in expected
    ]
    if wrong:
        last = expectations[-1]
        last["exp_alerts"] = [] if last["exp_alerts"] else [alert(str(last["alertname"]), "orders")]
    content = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": expectations,
            }
        ],
    }
    files = []
    for name, rules in (("ours", OURS), ("theirs", THEIRS)):
        (folder / name).mkdir(parents=True)
        (folder / name / "rules.yml").write_text(rules)
        files.append(folder / name / "story_test.yml")
        files[-1].write_text(yaml.safe_dump(content))
    return files[0], files[1]


@pytest.mark.parametrize("story", STORIES)
def test_the_real_promtool_judges_the_same_file_alike(tmp_path: Path, story: str) -> None:
    program = promtool()
    for wrong in (False, True):
        ours, theirs = written(tmp_path / str(wrong), story, wrong=wrong)
        told = subprocess.run([program, "test", "rules", theirs], capture_output=True, text=True, timeout=120)
        (result,) = run_tests([ours])
        assert (result.passed, told.returncode == 0) == (not wrong, not wrong), (
            result.problems,
            told.stdout,
            told.stderr,
        )


def test_the_expanding_notation() -> None:
    assert samples("1 -2+3x2 4x1 5-1x1 _ _x2 stale 1e3 .5") == [
        *(1.0, -2.0, 1.0, 4.0, 4.0, 4.0, 5.0, 4.0, None, None, None, STALE, 1000.0, 0.5)
    ]


@pytest.mark.parametrize("word", ["x3", "1+x3", "_x", "1x", "1x-3", "one", "{{schema:0}}", "1+2", "1 2x99999999999"])
def test_what_is_no_sample_is_refused(word: str) -> None:
    with pytest.raises(UserError, match=r"is no sample|more than"):
        samples(word)


@pytest.mark.parametrize(
    ("series", "says"),
    [
        ("depth", "write view:column"),
        ("queue_health:dept{queue='q'}", "write view:column"),
        ('queue_helth_now:depth{queue="q"}', "there is no view queue_helth_now"),
        ('queue_health_now:dept{queue="q"}', "has no column 'dept'"),
        ('queue_health_now:depth{queu="q"}', "has no column 'queu'"),
        ('queue_health_now:depth{in_flight="1"}', "a label is a text column"),
        ('queue_health_now:mode{queue="q"}', "mode is no number"),
    ],
)
def test_what_is_no_series_is_refused(series: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        series_of(InputSeries(series=series, values="1"), timedelta(minutes=1))


def test_labels_may_hold_whatever_is_quoted() -> None:
    name = 'queue_health_now:depth{ queue="a\\"b}, {c" ,broker = "x\\\\y",}'
    assert series_of(InputSeries(series=name, values="1"), timedelta(minutes=1)).labels == {
        "queue": 'a"b}, {c',
        "broker": "x\\y",
    }


def test_both_kinds_of_input_fit_one_test_and_a_whole_number_stays_one(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(OURS)
    text = """
rule_files: [rules.yml]
tests:
  - input: [{view: queue_health_now, rows: [{broker: nats, queue: mail, depth: 60}]}]
    input_series: [{series: 'queue_health_now:depth{broker="nats",queue="orders"}', values: VALUES}]
    alert_rule_test:
      - eval_time: 2m
        alertname: Deep
        exp_alerts:
          - exp_labels: {severity: critical, broker: nats, queue: mail}
            exp_annotations: {summary: mail is deep}
          - exp_labels: {severity: critical, broker: nats, queue: orders}
            exp_annotations: {summary: orders is deep}
"""
    (tmp_path / "both_test.yml").write_text(text.replace("VALUES", "70x5"))
    assert [(result.name, result.problems) for result in run_tests([tmp_path])] == [("number 1", ())]
    (tmp_path / "both_test.yml").write_text(text.replace("VALUES", "70.5x5"))
    assert "holds whole numbers" in run_tests([tmp_path])[0].problems[0]
    (tmp_path / "both_test.yml").write_text(text.replace("alert_rule_test", "promql_expr_test"))
    with pytest.raises(UserError, match="promql_expr_test"):
        run_tests([tmp_path])
