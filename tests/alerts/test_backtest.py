"""A backtest tells what rules would have done: the views as they stood, the engine's own evaluation, honest figures."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from alerts.backtest.history import History, Reached
from alerts.backtest.plot import strip, svg
from alerts.backtest.report import as_csv, as_json, table
from alerts.backtest.run import Backtest, backtest, newest
from alerts.durations import parse_duration
from alerts.rules.changes import Changes
from alerts.rules.loader import load_rules
from lake.definitions import Definitions
from lake.errors import UserError
from lake.reader import Reader
from lake.store import Lake
from lake.tables import EVENT_TYPES, QUEUE_SAMPLES
from sojourn.cli.main import app
from tests.support.deep import examples
from tests.support.finishing import finish

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
#: Seconds in which a message of ``orders`` is dead-lettered: while it is deep, and long after.
DEAD = (200, 500)
RULES = """
groups:
  - name: mine
    rules:
      - alert: Deep
        expr: >-
          SELECT broker, queue, SUM(backlog) AS value FROM tenant_backlog_now
          GROUP BY broker, queue HAVING SUM(backlog) > :most
        thresholds: {most: 100}
        for: 30s
        labels: {severity: critical}
      - alert: Old
        expr: >-
          SELECT queue, tenant, oldest_age_seconds AS value FROM tenant_backlog_now
          WHERE oldest_age_seconds > :target_seconds
      - alert: Busy
        expr: >-
          SELECT queue, COUNT(*) AS value FROM tenant_backlog
          WHERE as_of > :evaluation_time - INTERVAL 60 SECONDS AND as_of <= :evaluation_time GROUP BY queue
      - alert: Always
        expr: SELECT 1 AS value
      - alert: Failing
        expr: SELECT rule, 1 AS value FROM rule_health WHERE NOT ok
      - alert: Twice
        expr: SELECT 'x' AS x, 1 AS value FROM tenant_backlog_now
"""


def rows(until: int) -> list[dict[str, Any]]:
    """Partials of each second: ``orders`` is deep from minute 2 to 4 and from 6 to 7, ``mail`` ends after a minute."""
    found = []
    for second in range(until + 1):
        at = START + timedelta(seconds=second)
        deep = 200 if second in (120, 360) else -200 if second in (240, 420) else 0
        for queue, net in (("orders", deep), ("mail", 1 if second == 50 else 0)):
            if queue == "mail" and second > 60:
                continue
            counts = {"enqueued": 3 + max(0, net), "received": 3, "started": 3, "completed": 3 + max(0, -net)}
            if queue == "orders" and second in DEAD:
                counts |= {"completed": 2, "dead_lettered": 1}
            since = {240: 120, 420: 60}.get(second, 0) if net < 0 else 0  # what leaves, by when it came
            cells = [{"second": int(at.timestamp()) - since, "net": net}]
            found.append(
                {
                    "broker": "b",
                    "queue": queue,
                    "subscriber": "",
                    "tenant": "t",
                    "bucket_start": at,
                    "bucket_seconds": 1,
                }
                | {"newest_occurred_at": at, "backlog_cells": cells}
                | dict.fromkeys((*EVENT_TYPES, "started", "retries", "finished_unreceived"), 0)
                | counts
            )
    return found


def written(root: Path, until: int) -> Path:
    """A lake of these rows."""
    lake = Lake(root)
    lake.create()
    lake.append("partials", pa.Table.from_pylist(rows(until)))
    finish(root)
    return root


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("backtest") / "lake", 600)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "mine.yml"
    path.write_text(RULES)
    return path


def run(lake: Path, file: Path, *settings: str, step: str = "10s") -> Backtest:
    """All of ``RULES`` over the ten minutes."""
    changes = Changes(settings)
    rules = load_rules([file], builtin=False, changes=changes)
    target = changes.target_seconds()
    changes.finish()
    length = parse_duration(step)
    return backtest(rules, lake, START, START + 10 * MINUTE, length, stale_after=MINUTE, target_seconds=target)


@pytest.fixture(scope="module")
def found(lake: Path, file: Path) -> Backtest:
    return run(lake, file)


def firings(found: Backtest, name: str) -> list[tuple[float, float | None]]:
    """From when to when the rule fired, minutes."""
    [outcome] = [one for one in found.outcomes if one.rule.name == name]
    return [
        ((one.began - START) / MINUTE, None if one.over is None else (one.over - START) / MINUTE)
        for one in outcome.episodes
    ]


def test_it_fires_when_the_alert_process_would_have(found: Backtest) -> None:
    assert (found.instants, found.stale) == (61, 1), "at the first instant nothing had come"
    at = 1 / 6  # what happens in a second is seen at the next evaluation
    expected = [(2.5 + at, 4.0 + at), (6.5 + at, 7.0 + at)]
    assert firings(found, "Deep") == [pytest.approx(one) for one in expected]
    [deep] = [one for one in found.outcomes if one.rule.name == "Deep"]
    assert [(one.flap, one.peak) for one in deep.episodes] == [(False, 200.0), (True, 200.0)]
    assert (deep.pending, deep.errors) == (2, 0)


def test_what_nothing_came_for_grows_older(found: Backtest) -> None:
    [(orders, over), (again, _), (mail, still)] = sorted(
        firings(found, "Old"), key=lambda one: (one[1] is None, one[0])
    )
    assert (orders, over, again) == pytest.approx((2.5, 4.0, 6.5), abs=0.2)
    assert (mail, still) == (pytest.approx(50 / 60 + 0.5, abs=0.2), None)


def test_a_rule_over_history_sees_nothing_of_the_future(found: Backtest) -> None:
    [busy] = [one for one in found.outcomes if one.rule.name == "Busy"]
    assert busy.episodes[0].began == START + timedelta(seconds=10)
    assert max(one.peak or 0 for one in busy.episodes) <= 61  # the newest second is there twice, open and over


def test_what_has_no_history_is_named_and_an_error_is_that_rules_alone(found: Backtest) -> None:
    told = {one.rule.name: (one.skipped, one.errors > 0) for one in found.outcomes}
    assert told["Always"] == ("it reads nothing", False)
    assert told["Failing"] == ("rule_health has no history", False)
    assert told["Twice"] == (None, True)
    assert told["Deep"] == (None, False)


@pytest.mark.parametrize("second", [119, 239, 599, 30, 60, 130, 241, 400][: examples(3, 8)])
def test_the_views_are_those_that_a_lake_of_that_instant_has(tmp_path: Path, lake: Path, second: int) -> None:
    at = START + timedelta(seconds=second)
    columns = "queue, tenant, backlog, ready, oldest_age_seconds, arrival_rate, completion_rate"
    with Reader(written(tmp_path / "then", second - 1)) as then:
        expected = then.query(f"SELECT {columns} FROM tenant_backlog_now ORDER BY queue").to_pylist()
    with Reader(lake) as reader:
        history = History(reader.query, {"tenant_backlog_now"}, START, START + 10 * MINUTE, Definitions())
    tables, reached = history.at(at)
    rows_then = tables["tenant_backlog_now"]
    assert (reached, set(rows_then["as_of"].to_pylist())) == ({"b": Reached(at)}, {at})
    for row, wanted in zip(rows_then.select(columns.split(", ")).sort_by("queue").to_pylist(), expected, strict=True):
        if row["queue"] == "mail" and 60 < second < 120:  # until the window has gone by, a rate is the last one
            row |= {"arrival_rate": wanted["arrival_rate"], "completion_rate": wanted["completion_rate"]}
        # Here a second is over when its events are seen; there the newest event is the instant.
        assert row.pop("oldest_age_seconds") == pytest.approx(wanted.pop("oldest_age_seconds"), abs=1)
        assert _equal(row, wanted), (row, wanted)


def _equal(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(
        value == pytest.approx(wanted[name]) if isinstance(value, float) else value == wanted[name]
        for name, value in row.items()
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("most=1000",), []),
        (("Deep.most=1e3",), []),
        (("for=3m",), []),
        (("Deep.for=0s",), [(2.0, 4.0), (6.0, 7.0)]),
    ],
)
def test_a_threshold_can_be_tried(lake: Path, file: Path, settings: tuple[str, ...], expected: list[Any]) -> None:
    told = firings(run(lake, file, *settings), "Deep")
    assert told == [pytest.approx((begin + 1 / 6, end + 1 / 6)) for begin, end in expected]


def test_a_target_can_be_tried(lake: Path, file: Path) -> None:
    assert len(firings(run(lake, file, "target_seconds=100"), "Old")) == 2  # orders once, and mail
    assert firings(run(lake, file, "target_seconds=10000"), "Old") == []


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("mots=5", "is it 'most'"),
        ("Depe.most=5", "no rule has anything called 'Depe.most'"),
        ("most=many", "set another value"),
        ("most", "write NAME=VALUE"),
        ("for=soon", "is not a duration"),
        ("target_seconds=soon", "is a number of seconds"),
    ],
)
def test_what_cannot_be_set_is_refused(lake: Path, file: Path, setting: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        run(lake, file, setting)
    assert says in str(caught.value)


def test_a_rule_without_end_is_that_rules_error_and_stops_no_other(
    tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.backtest.run.RULE_SECONDS", 0.5)
    path = tmp_path / "endless.yml"
    five = ", ".join(f"tenant_backlog AS {name}" for name in "abcde")
    endless = f"SELECT COUNT(*) AS value FROM {five} WHERE a.backlog + b.backlog + c.backlog + d.backlog = e.backlog"
    path.write_text(RULES + f"      - {{alert: Endless, expr: '{endless}'}}\n")
    rules = [rule for rule in load_rules([path], builtin=False) if rule.name in ("Endless", "Deep")]
    begin = START + 9 * MINUTE
    told = backtest(rules, lake, begin, begin + timedelta(seconds=1), timedelta(seconds=1), stale_after=MINUTE)
    errors = {one.rule.name: (one.errors, one.error) for one in told.outcomes}
    assert errors == {"Endless": (2, "it took longer than 0.5 s – narrow it"), "Deep": (0, None)}


def test_the_table_the_csv_and_the_json_tell_the_same(found: Backtest) -> None:
    told = json.loads(as_json(found))
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [line["alert"] for line in lines] == [one["alert"] for one in told["firings"]]
    [deep] = [one for one in told["rules"] if one["alert"] == "Deep"]
    assert (deep["pages"], deep["alerts"], deep["flaps"], deep["firing_seconds"]) == (2, 1, 1, 120.0)
    assert deep["pages_a_week"] == pytest.approx(2 * 7 * 24 * 6)
    [shown] = [line.split() for line in table(found).split("\n") if line.startswith("Deep")]
    assert shown[:10] == ["Deep", "critical", "2", "2.02e+03", "1", "1", "2m", "1m30s", "2/2", "1m11s"]
    assert shown[10][0] == "│" and "█" in " ".join(shown[10:])
    assert "not run: Always: it reads nothing" in table(found)
    assert "errors: two rows have the same labels" in table(found)


def test_a_strip_shows_how_much_of_each_part_it_fired(found: Backtest) -> None:
    [deep] = [one for one in found.outcomes if one.rule.name == "Deep"]
    # Minutes 2:40 to 4:10 and 6:40 to 7:10, of ten.
    assert strip(found, deep, 10) == "  ▃█▁ ▃▁  "
    assert strip(found, deep, 60) == " " * 16 + "█" * 9 + " " * 15 + "█" * 3 + " " * 17


def test_how_early_it_fired_before_messages_were_dead_lettered_is_told(found: Backtest) -> None:
    assert [(one.queue, (one.at - START).total_seconds()) for one in found.dead_letters] == [
        ("orders", pytest.approx(200, abs=1)),
        ("orders", pytest.approx(500, abs=1)),
    ]
    [deep] = [one for one in found.outcomes if one.rule.name == "Deep"]
    assert [lead.total_seconds() for lead in found.leads(deep)] == [41, 101], "it may have been over for a while"
    [old] = [one for one in found.outcomes if one.rule.name == "Old"]
    assert [lead.total_seconds() for lead in found.leads(old)] == [41, 101], "the mail queue, old for long, is another"
    assert len(json.loads(as_json(found))["dead_letters"]) == 2


def test_the_plot_is_a_picture_of_every_firing(found: Backtest) -> None:
    picture = ElementTree.fromstring(svg(found))
    space = "{http://www.w3.org/2000/svg}"
    bars = [one for one in picture.iter(f"{space}rect") if one.get("fill") == "#c62828"]
    assert [(float(one.get("x", "")), float(one.get("width", ""))) for one in bars] == [
        (260 + 900 * 160 / 600, 900 * 90 / 600),
        (260 + 900 * 400 / 600, 900 * 30 / 600),
    ]
    assert len(list(picture.iter(f"{space}line"))) == 2
    assert any((one.text or "").startswith("Deep (2 pages)") for one in picture.iter(f"{space}text"))


def test_the_command_writes_a_file_and_explains_what_it_cannot_do(tmp_path: Path, lake: Path, file: Path) -> None:
    def command(*words: str) -> Any:
        return CliRunner().invoke(app, ["rules", "backtest", str(file), "--lake", str(lake), *words])

    path, picture = tmp_path / "told.json", tmp_path / "told.svg"
    written_to = ("--format", "json", "-o", str(path), "--plot", str(picture))
    done = command("--from", "10m", "--step", "30s", "--rule", "Deep", *written_to)
    assert done.exit_code == 0, done.output
    assert picture.read_text().startswith("<svg")
    told = json.loads(path.read_text())
    assert (told["to"], [one["alert"] for one in told["rules"]]) == (newest(lake).isoformat(), ["Deep"])
    for words, says in (
        (("--from", "sometime"), "is no instant"),
        (("--from", "10m", "--step", "1ms"), "choose a longer --step"),
        (("--from", "10m", "--rule", "Depe"), "there is no rule Depe"),
        (("--from", "2026-01-02", "--to", "2026-01-01"), "give --from before --to"),
    ):
        failed = command(*words)
        assert failed.exit_code != 0
        assert isinstance(failed.exception, UserError) and says in str(failed.exception), failed.output


@pytest.mark.parametrize(("early", "words", "runs"), [(False, (), False), (True, (), True), (False, ("--rule",), True)])
def test_a_rule_that_nobody_evaluates_is_not_run_unless_it_is_asked_for(
    tmp_path: Path, lake: Path, early: bool, words: tuple[str, ...], runs: bool
) -> None:
    config = tmp_path / "sojourn.toml"
    config.write_text(
        f'[[alert.control.policies]]\nname = "throttle-noisy"\nearly = {str(early).lower()}\n', encoding="utf-8"
    )
    asked = [word for option in words for word in (option, "TenantFillsQueue")]
    place = ["--lake", str(lake), "--config", str(config), "--from", "1m", "--format", "json"]
    told = CliRunner().invoke(app, ["rules", "backtest", *place, *asked])
    assert told.exit_code == 0, told.output
    not_run = {one["alert"]: one["not_run"] for one in json.loads(told.stdout)["rules"]}
    assert not_run["TenantFillsQueue"] == (
        None if runs else "no policy is `early`, and it is evaluated for those alone"
    )
    if not words:
        assert not_run["NoisyTenant"] is None and "[[alert.control.groups]]" in not_run["NoisyGroup"]


def test_a_broker_that_is_read_seldom_is_not_silent_between_two_readings(tmp_path: Path, file: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    for at in (START + timedelta(seconds=number * 100) for number in range(3)):
        sample = {"sampled_at": at, "broker": "sqs", "queue": "mail", "messages": 5, "sample_interval_seconds": 100.0}
        sample |= {"source": "sqs", "ingested_at": at, "ingest_date": at.date()}
        lake.append("queue_samples", pa.Table.from_pylist([sample], QUEUE_SAMPLES.schema))
    finish(tmp_path)
    found = run(tmp_path, file)
    silent_from = timedelta(seconds=200 + 3 * 100)
    assert found.stale == 1 + (10 * MINUTE - silent_from) // timedelta(seconds=10), "the first, and those behind three"
