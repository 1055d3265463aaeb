"""`sojourn replay`, `analyze --once` and `sql` agree with the reference row by row, and so does the JVM-free reader.

The whole way, on one log with duplicates, disorder, retries, two subscribers and skewed clocks. What Spark leaves in
gold is also what the plain-Python partials of the fast tests are, so that those judge the real thing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from collectors.replay import ReplayReport, replay
from lake.reader import Reader
from lake.store import Lake
from lake.tables import AGE_KINDS, EVENT_TYPES
from tests.reference.compare import METRIC_VIEWS, differences, expected_rows
from tests.reference.generate import Row, generate, write_jsonl
from tests.reference.lives import numbered, without_duplicates
from tests.reference.partials import add_samples, marks_of, partials_of
from tests.reference.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A minute on two idle cores; the limit is for busy ones.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).parents[2]
SEED = 11


@dataclass(frozen=True)
class Analysed:
    """A lake after `replay` and `analyze --once`, and the log that went in; ``told``: each event once, numbered."""

    lake: Lake
    events: list[Row]
    told: list[Row]
    report: ReplayReport
    reference: Reference


def sojourn(*arguments: str) -> str:
    """The standard output of one ``sojourn`` command."""
    command = [sys.executable, "-m", "sojourn.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    folder = tmp_path_factory.mktemp("reference")
    log, samples = generate(SEED, messages=600, seconds=800, burst=40)
    # An ending before any attempt comes without a number from outside: replay takes none below 1.
    events = [row | {"attempt": row.get("attempt") or None} for row in log]
    half = len(events) // 2
    lake = Lake(folder / "lake")
    first = write_jsonl(folder / "first.jsonl", events[:half])
    second = write_jsonl(folder / "second.jsonl", events[half:])
    report = replay([first, second], lake.root)
    add_samples(lake, samples)
    sojourn("analyze", "--once", "--lake", str(lake.root))
    told = numbered(without_duplicates(events))
    return Analysed(lake, events, told, report, Reference(told, samples))


def test_replay_writes_each_event_once(analysed: Analysed) -> None:
    report, distinct = analysed.report, len(without_duplicates(analysed.events))
    assert (report.read, report.written, report.rejected) == (len(analysed.events), distinct, 0)
    assert report.duplicates > 0


@pytest.mark.parametrize("view", METRIC_VIEWS)
def test_the_reader_serves_what_the_reference_counts(analysed: Analysed, view: str) -> None:
    rows = Reader(analysed.lake.root).query(f"SELECT * FROM {view}").to_pylist()
    assert differences(expected_rows(analysed.reference, view), rows) == []


@pytest.fixture(scope="module")
def served(analysed: Analysed, spark: SparkSession) -> SparkSession:
    """A session in which the lake's views stand, as `sojourn sql` makes them."""
    from spark_analytics.views import register

    register(spark, analysed.lake, set(METRIC_VIEWS))
    return spark


@pytest.mark.parametrize("view", METRIC_VIEWS)
def test_spark_sql_serves_what_the_reference_counts(analysed: Analysed, served: SparkSession, view: str) -> None:
    rows = served.sql(f"SELECT * FROM {view}").toArrow().to_pylist()
    assert differences(expected_rows(analysed.reference, view), rows) == []


def test_the_command_line_prints_what_the_reference_counts(analysed: Analysed) -> None:
    query = "SELECT queue, subscriber, tenant, kind, count FROM attempt_age_now"
    printed = sojourn("sql", query, "--format", "json", "--lake", str(analysed.lake.root))
    rows = json.loads(printed) if printed.startswith("[") else [json.loads(line) for line in printed.splitlines()]
    names = ("queue", "subscriber", "tenant", "kind", "count")
    expected = [{name: row[name] for name in names} for row in analysed.reference.attempt_age(now=True)]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)


def test_gold_holds_the_partials_that_plain_python_makes(analysed: Analysed) -> None:
    expected = merged(partials_of(analysed.told))
    actual = merged(analysed.lake.read("partials").to_pylist())
    assert actual.keys() == expected.keys()
    for key, row in expected.items():
        assert actual[key] == pytest.approx(row), key


def test_gold_holds_the_marks_that_plain_python_makes(analysed: Analysed) -> None:
    names = analysed.lake.read("marks").column_names
    expected = [{name: row.get(name) for name in names} for row in marks_of(analysed.told)]
    actual = analysed.lake.read("marks").to_pylist()
    assert sorted(map(printed_mark, actual)) == sorted(map(printed_mark, expected))


def printed_mark(row: Row) -> str:
    return repr([(name, str(value)) for name, value in sorted(row.items())])


def merged(partials: list[Row]) -> dict[Any, dict[str, Any]]:
    """Partials summed by key, flat: counts, sums, maxima, and each histogram bucket and backlog cell."""
    totals: dict[Any, dict[str, Any]] = {}
    counters = (*EVENT_TYPES, "started", "retries", "finished_unreceived", "processing_count", "processing_sum")
    for row in partials:
        key = tuple(str(row[name]) for name in ("broker", "queue", "subscriber", "tenant", "bucket_start"))
        total = totals.setdefault(key, {})
        ages = [f"{kind}_age_{what}" for kind in AGE_KINDS for what in ("count", "sum", "skewed")]
        for name in (*counters, *ages):
            total[name] = total.get(name, 0) + (row[name] or 0)
        for name in ("newest_occurred_at", "processing_max", *(f"{kind}_age_max" for kind in AGE_KINDS)):
            value = row[name].timestamp() if name == "newest_occurred_at" else row[name]
            total[name] = max(total.get(name) or 0.0, value or 0.0)
        for name in ("processing_histogram", *(f"{kind}_age_histogram" for kind in AGE_KINDS)):
            for cell in row[name] or []:
                total[f"{name} {cell['index']}"] = total.get(f"{name} {cell['index']}", 0) + cell["count"]
        for cell in row["backlog_cells"] or []:
            name = f"cell {cell['second']}"
            total[name] = total.get(name, 0) + cell["net"]
    return {key: {name: value for name, value in total.items() if value} for key, total in totals.items()}
