from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from alerts.check import check, test
from alerts.rules.document import markdown
from alerts.rules.loader import BUILTIN, OPTIONAL, load_rules, rule_files
from alerts.rules.model import NoData
from alerts.rules.templates import render
from lake.errors import UserError

PROJECT = Path(__file__).parents[2]
GOOD = """
groups:
  - name: mine
    interval: 30s
    limit: 10
    labels: {team: payments}
    rules:
      - alert: Behind
        expr: SELECT queue, depth AS value FROM queue_health_now WHERE depth > 100
        for: 1h30m
        keep_firing_for: 5m
        labels: {severity: page}
        annotations: {summary: "{{ labels.queue }} holds {{ value }}"}
        no_data: alert
        actions: [throttle-noisy]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.yml"
    path.write_text(text)
    return path


def failure(tmp_path: Path, text: str) -> UserError:
    with pytest.raises(UserError) as caught:
        load_rules([written(tmp_path, text)], builtin=False)
    assert str(tmp_path / "rules.yml") in str(caught.value)
    return caught.value


def test_a_rule_file_has_prometheus_shape_with_no_data_and_actions(tmp_path: Path) -> None:
    (rule,) = load_rules([written(tmp_path, GOOD)], builtin=False)
    assert (rule.key, rule.hold, rule.keep_firing_for) == (
        ("mine", "Behind"),
        timedelta(minutes=90),
        timedelta(minutes=5),
    )
    assert rule.labels == {"team": "payments", "severity": "page"}
    assert (rule.no_data, rule.actions, rule.limit) == (NoData.ALERT, ("throttle-noisy",), 10)
    assert (rule.interval, rule.tables) == (timedelta(seconds=30), {"queue_health_now"})


def test_an_unknown_key_names_file_rule_and_nearest_key(tmp_path: Path) -> None:
    error = failure(tmp_path, GOOD.replace("keep_firing_for", "keep_firing"))
    assert "mine / Behind: unknown key 'keep_firing'" in error.what
    assert error.fix == "did you mean 'keep_firing_for'?"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("FROM queue_health_now", "FROM queue_helth_now", "did you mean queue_health_now"),
        ("WHERE depth > 100", "WHERE dept > 100", "dept"),
        ("SELECT queue, depth AS value", "DROP TABLE partials; SELECT 1 AS value", "not a query"),
        ("SELECT queue, depth AS value", "SELECT queue, depth", "no column named value"),
        ("FROM queue_health_now", "FROM read_csv('/etc/passwd')", "read_csv"),
        ("1h30m", "soon", "not a duration"),
        ("severity: page", "sever-ity: page", "labels"),
        ("{{ value }}", "{{ value", "template"),
        ("no_data: alert", "no_data: shrug", "no_data"),
        ("- alert: Behind", "- alrt: Behind", "did you mean 'alert'"),
        ("- alert: Behind\n       ", "-", "'alert' is missing"),
        ("    limit: 10", "   limit: 10", "not valid YAML"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_in_one_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    error = failure(tmp_path, GOOD.replace(before, after))
    assert said in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("for: 1h30m", "for: 1h\n        for: 2h", "line 11, column 9: the key 'for' is there twice, first in line 10"),
        ("team: payments}", "team: a, team: b}", "line 6, column 23: the key 'team' is there twice, first in line 6"),
        ("keep_firing_for", "keep_firing", "line 11, column 9: mine / Behind: unknown key 'keep_firing'"),
        ("labels.queue", "lables.queue", "line 13, column 23: mine / Behind: template"),
        ("labels.queue", "lables.queue", "unknown name 'lables', did you mean 'labels'?"),
        ("FROM queue_health_now", "FROM queue_helth_now", "line 9, column 9: mine / Behind"),
        ("[throttle-noisy]", "[throttle-noisey]", "line 15, column 9: mine / Behind: no policy is called"),
        ("[throttle-noisy]", "[throttle-noisey]", "is it 'throttle-noisy'?"),
        ("{severity: page}", "{severity: 2026-99-99}", "line 12, column 28: cannot be read: month must be in 1..12"),
        ("{severity: page}", f"{{severity: {'1' * 5000}}}", "line 12, column 28: cannot be read"),
        ("{severity: page}", '{severity: "\\ud800"}', "line 12, column 28: a text holds half a character"),
        ("{severity: page}", f"{'[' * 5000}", "nested too deeply"),
        ("{severity: page}", "&a [*a]", "line 12, column 17: it holds itself"),
        ("{severity: page}", "!!python/object/apply:os.system [id]", "not valid YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line_and_column(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    assert GOOD.count(before) == 1
    with pytest.raises(UserError) as caught:
        load_rules([written(tmp_path, GOOD.replace(before, after))], builtin=False, actions=["throttle-noisy"])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_few_lines_of_aliases_do_not_become_a_billion_entries(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "aliases written out" in str(failure(tmp_path, "\n".join(lines)))


def test_aliases_and_merged_keys_may_be_used(tmp_path: Path) -> None:
    text = GOOD.replace("labels: {team: payments}", "labels: &team {team: payments}")
    text = text.replace("labels: {severity: page}", "labels: {<<: *team, severity: page, team: own}")
    (rule,) = load_rules([written(tmp_path, text)], builtin=False)
    assert rule.labels == {"team": "own", "severity": "page"}


def test_built_in_rules_may_name_a_policy_that_was_taken_out() -> None:
    assert load_rules([], builtin=True, actions=[])


def test_a_rule_that_asks_for_the_whole_memory_is_an_error_of_that_rule_when_it_is_checked(tmp_path: Path) -> None:
    bomb = "SELECT size(sequence(1, 400000000)) AS value"
    path = tmp_path / "rules.yml"
    path.write_text(GOOD.replace("SELECT queue, depth AS value FROM queue_health_now WHERE depth > 100", bomb))
    with pytest.raises(UserError, match=r"needed more than \d+ MB"):
        load_rules([path], builtin=False)
    path.write_text(GOOD)
    assert len(load_rules([path], builtin=False)) == 1


def test_an_empty_or_absent_file_is_a_clear_error(tmp_path: Path) -> None:
    assert "empty" in str(failure(tmp_path, ""))
    with pytest.raises(UserError, match="there is no rule file"):
        load_rules([tmp_path / "absent.yml"], builtin=False)


def test_group_and_name_identify_a_rule(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD)
    (tmp_path / "b.yml").write_text(GOOD)
    with pytest.raises(UserError, match="is already in"):
        load_rules([tmp_path], builtin=False)


def test_each_built_in_rule_fires_in_a_test_beside_it() -> None:
    fires = {
        alert["alertname"]
        for file in BUILTIN.glob("*_test.yml")
        for test in yaml.safe_load(file.read_text())["tests"]
        for expected in test["expect"]
        for alert in expected["alerts"]
        if alert["state"] == "firing"
    }
    assert {rule.name for rule in load_rules((), builtin=True)} <= fires


def test_the_built_in_rules_are_valid_and_each_has_a_runbook_and_a_test_beside_it() -> None:
    names = {rule.name for rule in check([], builtin=True)}
    assert names >= {"NoisyTenant", "QueueBacklogged", "QueueStalled", "BacklogGrowing", "FirstAttemptAgeHigh"}
    assert names >= {
        "DeadLetters",
        "ConsumerSaturated",
        "LowCoverage",
        "StaleData",
        "RuleFailing",
        "HistoryIncomplete",
        "Watchdog",
    }
    for file in rule_files([BUILTIN]):
        runbook = file.with_suffix(".md").read_text()
        assert file.with_name(f"{file.stem}_test.yml").is_file()
        for rule in load_rules([file], builtin=False):
            assert rule.name in runbook, f"{rule.name} is not explained in {file.stem}.md"
            assert rule.annotations["runbook"] == f"{file.stem}.md"


@pytest.mark.parametrize(
    "file", sorted([*BUILTIN.glob("*_test.yml"), *OPTIONAL.glob("*_test.yml")]), ids=lambda f: f.stem
)
def test_the_built_in_rules_pass_their_own_tests(file: Path) -> None:
    results = test([file])
    assert results
    assert {result.name: result.problems for result in results if not result.passed} == {}


def test_the_page_of_the_shipped_rules_is_what_their_files_say() -> None:
    assert (PROJECT / "docs" / "rules.md").read_text() == markdown(), "run make docs"


def test_a_rule_may_say_itself_when_it_is_over(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text("""
groups:
  - name: g
    rules:
      - alert: Deep
        expr: SELECT broker, queue, depth AS value FROM queue_health_now WHERE depth > :most
        resolve: SELECT queue, broker, depth AS value FROM queue_health_now WHERE depth < :least AND coverage > 0.8
        thresholds: {most: 1000, least: 100}
""")
    (tmp_path / "rules_test.yml").write_text("""
rule_files: [rules.yml]
tests:
  - name: between the two it fires on, and missing rows end nothing
    interval: 1m
    input:
      - {at: 0s, view: queue_health_now, rows: [{broker: b, queue: q, depth: 2000, coverage: 1.0}]}
      - {at: 1m, view: queue_health_now, rows: [{broker: b, queue: q, depth: 500, coverage: 1.0}]}
      - {at: 2m, view: queue_health_now, rows: []}
      - {at: 3m, view: queue_health_now, rows: [{broker: b, queue: q, depth: 50, coverage: 1.0}]}
    expect:
      - {at: 0m, alerts: [{alertname: Deep, state: firing}]}
      - {at: 1m, alerts: [{alertname: Deep, state: keep_firing}]}
      - {at: 2m, alerts: [{alertname: Deep, state: keep_firing}]}
      - {at: 3m, alerts: []}
""")
    (result,) = test([tmp_path / "rules_test.yml"])
    assert result.problems == ()
    file.write_text(file.read_text().replace("SELECT queue, broker, depth", "SELECT queue, depth"))
    with pytest.raises(
        UserError, match=r"line 7, column \d+: g / Deep: it has the labels queue, the expression broker, queue"
    ):
        check([file], builtin=False)


def test_a_rule_test_that_expects_something_else_says_what_it_found(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    (tmp_path / "rules_test.yml").write_text("""
rule_files: [rules.yml]
tests:
  - name: wrong twice
    interval: 30m
    input: [{view: queue_health_now, rows: [{broker: nats, queue: orders, depth: 101}]}]
    expect:
      - {at: 0s, alerts: [{alertname: Behind, state: firing}]}
      - {at: 90m, alerts: []}
""")
    (result,) = test([tmp_path])
    assert not result.passed
    assert "state is pending" in result.problems[0]
    assert "unexpected Behind" in result.problems[1]


def test_templates_cannot_reach_out_of_their_sandbox() -> None:
    assert "error" in render("{{ labels.__class__.__mro__[1].__subclasses__() }}", {}, 1.0, {})
    assert render("{{ labels.absent }}|{{ value | humanize }}", {}, 1234.5, {}) == "|1.234k"
