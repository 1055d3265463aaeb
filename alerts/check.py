"""Behind ``sojourn rules check`` and ``sojourn rules test``: rule files proven before they page anybody.

A test file gives rows of views over time and the alerts that must stand at given times, or both in the words of
``promtool test rules`` (:mod:`alerts.promtool`). It runs the very evaluation that the alert process runs, in memory,
without a lake.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.types as types
from pydantic import BaseModel, ConfigDict, Field, model_validator

from alerts.answer import Identities
from alerts.durations import Duration, format_duration, parse_duration
from alerts.evaluate import Freshness, RuleMemory, evaluate
from alerts.memory import Memory
from alerts.models import AlertInstance, AlertState
from alerts.promtool import AlertRuleTest, ExpectedFiring, InputSeries, Series, differences, rows_at, series_of
from alerts.rules.expression import schema_of
from alerts.rules.loader import BUILTIN, OPTIONAL, TEST_SUFFIX, load_file, load_rules, validated
from alerts.rules.model import Rule
from alerts.rules.prepared import Prepared
from lake.definitions import Definitions
from lake.errors import SojournError, UserError
from lake.histogram import bucket_index

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_STEPS = 100_000


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Model):
    """Rows that a view shows from ``at`` on, until its next input."""

    at: Duration = timedelta(0)
    view: str
    rows: tuple[dict[str, Any], ...]


class ExpectedAlert(_Model):
    """An alert that must stand; what is not given is not compared."""

    alertname: str
    state: AlertState
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    value: float | None = None
    actions: tuple[str, ...] | None = None


class Expectation(_Model):
    """All alerts that stand at ``at``: neither more nor fewer."""

    at: Duration
    alerts: tuple[ExpectedAlert, ...] = ()


class RuleTest(_Model):
    """One story."""

    name: str = ""
    interval: Duration = timedelta(seconds=10)
    input: tuple[Input, ...] = ()
    input_series: tuple[InputSeries, ...] = ()
    expect: tuple[Expectation, ...] = ()
    alert_rule_test: tuple[AlertRuleTest, ...] = ()

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if not self.expect and not self.alert_rule_test:
            raise ValueError("a test expects something: give expect or alert_rule_test")
        return self

    @property
    def is_promtools(self) -> bool:
        """Whether it is written as for promtool: ``interval`` is then that of the samples."""
        return bool(self.input_series or self.alert_rule_test)


class TestFile(_Model):
    """A whole test file; ``rule_files`` are relative to it. ``group_eval_order`` is promtool's: none matters here."""

    __test__ = False  # not one of pytest's

    rule_files: tuple[Path, ...]
    evaluation_interval: Duration = timedelta(minutes=1)
    group_eval_order: tuple[str, ...] = ()
    definitions: Definitions = Definitions()
    tests: tuple[RuleTest, ...]


@dataclass(frozen=True, slots=True)
class TestResult:
    """How one test of a file went; without ``problems`` it passed."""

    __test__ = False

    file: Path
    name: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.problems


def check(paths: Sequence[Path], *, builtin: bool, actions: Collection[str] | None = None) -> tuple[Rule, ...]:
    """The rules of ``paths``, if all are valid; UserError says what is wrong with the first that is not.

    ``actions``: the policies that rules may name; None = any.
    """
    return load_rules(paths, builtin=builtin, actions=actions)


def test(paths: Sequence[Path]) -> list[TestResult]:
    """Run the test files in ``paths`` (files, or folders of ``*_test.yml``; none: those of the shipped rules)."""
    results = []
    for file in _test_files(paths or [BUILTIN, OPTIONAL]):
        content = validated(
            file,
            TestFile,
            {
                (): TestFile,
                ("tests",): RuleTest,
                ("tests", "input"): Input,
                ("tests", "expect"): Expectation,
                ("tests", "expect", "alerts"): ExpectedAlert,
                ("tests", "input_series"): InputSeries,
                ("tests", "alert_rule_test"): AlertRuleTest,
                ("tests", "alert_rule_test", "exp_alerts"): ExpectedFiring,
            },
        )
        rules = [rule for name in content.rule_files for rule in load_file(file.parent / name)]
        for number, one in enumerate(content.tests, 1):
            try:
                every = content.evaluation_interval if one.is_promtools else one.interval
                problems = _run(one, rules, content.definitions, every)
            except SojournError as error:
                problems = [str(error)]
            results.append(TestResult(file, one.name or f"number {number}", tuple(problems)))
    return results


test.__test__ = False  # type: ignore[attr-defined]


def _test_files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted([*path.glob(f"*{TEST_SUFFIX}"), *path.glob("*_test.yaml")])
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"there is no test file {path}", "correct the path")
    if not files:
        raise UserError("there are no test files", f"name them *{TEST_SUFFIX}")
    return files


def _run(story: RuleTest, rules: Sequence[Rule], definitions: Definitions, every: timedelta) -> list[str]:
    end = max([*(one.at for one in story.expect), *(one.eval_time for one in story.alert_rule_test)])
    if min(every, story.interval) <= timedelta(0) or end / every > MOST_STEPS:
        raise UserError(f"test {story.name!r} takes more than {MOST_STEPS} steps", "give it a longer interval")
    odd = [format_duration(e.at) for e in story.expect if e.at % every]
    if odd:
        raise UserError(
            f"test {story.name!r} expects something at {odd[0]}, when nothing is evaluated",
            f"use multiples of its interval, {format_duration(every)}",
        )
    memory = Memory()
    try:
        return _play(story, rules, definitions, memory, end, every)
    finally:
        memory.close()


def _play(
    story: RuleTest, rules: Sequence[Rule], definitions: Definitions, memory: Memory, end: timedelta, every: timedelta
) -> list[str]:
    between = story.interval if "interval" in story.model_fields_set else every
    series = [series_of(one, between) for one in story.input_series]
    remembered = {rule.key: RuleMemory() for rule in rules}
    identities = {rule.key: Identities() for rule in rules}
    statements: dict[str, Prepared] = {}
    problems: list[str] = []
    at = timedelta(0)
    while at <= end:
        now = START + at
        memory.put(_tables(story.input, series, {name for rule in rules for name in rule.tables}, at))
        standing: list[tuple[Rule, AlertInstance]] = []
        for rule in rules:

            def query(expr: str, rule: Rule = rule, now: datetime = now) -> pa.Table:
                if expr not in statements:
                    statements[expr] = Prepared(expr, rule.tables, definitions)
                return memory.answer(statements[expr].at(now), rule.tables)

            outcome = evaluate(rule, remembered[rule.key], query, Freshness(now, now, False), now, identities[rule.key])
            if outcome.evaluation.error:
                problems.append(f"at {format_duration(at)}: {rule.name}: {outcome.evaluation.error}")
            remembered[rule.key] = outcome.memory
            standing += [(rule, alert) for alert in outcome.evaluation.alerts]
        for expectation in story.expect:
            if expectation.at == at:
                problems += [f"at {format_duration(at)}: {text}" for text in _compare(expectation.alerts, standing)]
        for wanted in story.alert_rule_test:
            if at <= wanted.eval_time < at + every:
                told = differences(wanted, [alert for _, alert in standing])
                problems += [f"at {format_duration(wanted.eval_time)}: {text}" for text in told]
        at += every
    return problems


def _tables(
    inputs: Sequence[Input], series: Sequence[Series], names: Iterable[str], at: timedelta
) -> dict[str, pa.Table]:
    known = set(names)
    told = rows_at(series, at, START)
    for view in (*(one.view for one in inputs), *(one.view for one in series)):
        if view not in known:
            raise UserError(f"no rule of the test reads {view}", f"give rows for {', '.join(sorted(known))}")
    tables = {}
    for name in known:
        schema = schema_of(name)
        current = [one for one in inputs if one.view == name and one.at <= at]
        rows = [*(max(current, key=lambda one: one.at).rows if current else ()), *told.get(name, ())]
        tables[name] = pa.Table.from_pylist([_row(row, schema, name, at) for row in rows], schema=schema)
    return tables


def _row(row: Mapping[str, Any], schema: pa.Schema, view: str, at: timedelta) -> dict[str, Any]:
    """``row`` with instants: a duration counts from the test's start; ``as_of`` is the time of the evaluation."""
    unknown = [name for name in row if name not in schema.names]
    if unknown:
        raise UserError(f"{view} has no column {unknown[0]!r}", f"its columns are {', '.join(schema.names)}")
    full: dict[str, Any] = {"as_of": START + at, **row} if "as_of" in schema.names else dict(row)
    for name, value in full.items():
        if types.is_timestamp(schema.field(name).type) and not isinstance(value, datetime):
            full[name] = START + parse_duration(value)
    if isinstance(ages := full.get("histogram"), dict):
        full["histogram"] = _histogram(ages, view)
        full.setdefault("count", sum(cell["count"] for cell in full["histogram"]))
    return full


def _histogram(ages: Mapping[object, Any], view: str) -> list[dict[str, int]]:
    """Cells from ``{20s: 990, 1m: 10}``: so many messages that waited so long."""
    cells: dict[int, int] = {}
    for age, count in ages.items():
        if type(count) is not int or count < 0:
            raise UserError(f"{view}: histogram: {count!r} is no count", "write {20s: 990}: a duration and a number")
        try:
            index = bucket_index(parse_duration(age).total_seconds())
        except ValueError as error:
            raise UserError(f"{view}: histogram: {error}", "write {20s: 990}: a duration and a number") from error
        cells[index] = cells.get(index, 0) + count
    return [{"index": index, "count": cells[index]} for index in sorted(cells)]


def _compare(expected: Sequence[ExpectedAlert], standing: Sequence[tuple[Rule, AlertInstance]]) -> list[str]:
    left = list(standing)
    problems = []
    for wanted in expected:
        found = next((pair for pair in left if not _differences(wanted, *pair)), None)
        if found is not None:
            left.remove(found)
            continue
        near = next((pair for pair in left if pair[1].rule == wanted.alertname), None)
        why = "; ".join(_differences(wanted, *near)) if near else "there is no such alert"
        problems.append(f"expected {wanted.alertname} {dict(wanted.labels)} {wanted.state}: {why}")
    if not problems:
        problems += [f"unexpected {a.rule} {dict(a.labels)} {a.state}, value {a.value}" for _, a in left]
    return problems


def _differences(wanted: ExpectedAlert, rule: Rule, alert: AlertInstance) -> list[str]:
    differences = []
    if alert.rule != wanted.alertname:
        differences.append(f"alert is {alert.rule}")
    if alert.state is not wanted.state:
        differences.append(f"state is {alert.state}")
    for kind, want, have in (
        ("label", wanted.labels, alert.labels),
        ("annotation", wanted.annotations, alert.annotations),
    ):
        differences += [
            f"{kind} {name} is {have.get(name)!r}, not {value!r}"
            for name, value in want.items()
            if have.get(name) != value
        ]
    if wanted.value is not None and (alert.value is None or not math.isclose(alert.value, wanted.value, rel_tol=1e-9)):
        differences.append(f"value is {alert.value}, not {wanted.value}")
    if wanted.actions is not None and wanted.actions != rule.actions:
        differences.append(f"actions are {list(rule.actions)}")
    return differences
