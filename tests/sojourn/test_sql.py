"""``sojourn sql`` as it is used: one statement, several from a pipe, a prompt; by Spark and by the reader."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lake.store import Lake
from lake.tables import PARTIALS
from sojourn.cli.about import columns_of, described, listed
from sojourn.cli.rows import FORMATS, TABLE_ROWS
from sojourn.cli.statements import split
from tests.reference.partials import partials_of
from tests.spark_analytics.events import event
from tests.support.finishing import finish
from tests.support.terminal import Terminal

HOME = Path(__file__).parents[2]
#: Joins a table with itself until no machine comes to an end with it.
ENDLESS = "SELECT sum(a.n * b.n * c.n) AS n FROM " + " CROSS JOIN ".join(
    f"(SELECT 1 AS n, explode(sequence(1, 100000)) AS x FROM partials) {name}" for name in "abc"
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that holds the arrivals of three messages."""
    lake = Lake(tmp_path_factory.mktemp("sql") / "lake")
    lake.create()
    rows = partials_of([event("enqueued", float(age), message_id=f"m{age}") for age in (1, 2, 3)])
    lake.append("partials", pa.Table.from_pylist(rows, PARTIALS.schema))
    finish(lake.root)
    return lake


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SOJOURN_")}
    caches = {name: os.environ[name] for name in ("SOJOURN_CACHE", "SOJOURN_MAVEN_REPOSITORY") if name in os.environ}
    return {**kept, **caches, "PYTHONPATH": str(HOME), "SOJOURN_JAVA_ARCHIVE": "ready", **more}


def sql(lake: Lake, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sojourn.cli.main", "sql", "--lake", str(lake.root), *arguments]
    return subprocess.run(
        command, env=environment(), input=typed, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.spark
@pytest.mark.slow
def test_statements_from_a_pipe_are_answered_one_by_one(filled: Lake) -> None:
    statements = "SELECT sum(enqueued) AS n FROM partials; -- a semicolon; in a comment\nSELECT ';' AS s FROM limits;"
    run = sql(filled, "--format", "csv", typed=statements)
    assert (run.stdout, run.stderr, run.returncode) == ("n\n3\ns\n", "", 0)


@pytest.mark.spark
@pytest.mark.slow
def test_json_has_types_and_goes_to_a_file_whole(filled: Lake, tmp_path: Path) -> None:
    place = tmp_path / "rows.json"
    query = "SELECT as_of, backlog, arrival_rate, noisy, subscriber FROM tenant_backlog_now"
    run = sql(filled, query, "--format", "json", "--output", str(place))
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)
    [row] = map(json.loads, place.read_text().splitlines())
    assert row["as_of"].endswith("+00:00")
    assert (type(row["backlog"]), type(row["arrival_rate"]), type(row["noisy"])) == (int, float, bool)
    assert (row["backlog"], row["subscriber"]) == (3, None)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_the_reader_answers_without_java(filled: Lake, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sojourn.cli.main", "sql", "SELECT backlog FROM tenant_backlog_now"]
    run = subprocess.run(
        [*command, "--engine", "reader", "--format", "csv", "--lake", str(filled.root)],
        env=environment(JAVA_HOME=str(tmp_path), PATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("backlog\n3\n", "", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("SELECT 1 FROM nothing",), "no view or table is named nothing"),
        (("SELECT 1 FROM limits; SELECT 2 FROM limits",), "expected one statement"),
        (("SELECT 1 FROM limits", "--as-of", "yesterday"), "is no time"),
        (("SELECT 1 FROM limits", "--as-of", "2999-01-01T00:00:00Z"), "in the future"),
        (("SELECT 1 FROM limits", "--as-of", "partials@77"), "has no version 77 – versions in its log: 0 to 1"),
        (("SELECT 1 FROM limits", "--as-of", "-1h", "--engine", "reader"), "knows the newest state alone"),
        (("SELECT length(repeat('x', 1000000000000)) AS n", "--engine", "reader"), "the query"),
        (("SELECT size(sequence(1, 400000000)) AS n", "--engine", "reader"), "needed more than 2048 MB of memory"),
        (("SELECT 1 FROM limits", "--output", "/nowhere/rows"), "/nowhere/rows cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_waits_for_nothing(filled: Lake, arguments: tuple[str, ...], said: str) -> None:
    run = sql(filled, *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.fixture
def shell(filled: Lake, tmp_path: Path) -> Iterator[Terminal]:
    """The prompt, with a cache of its own for the history, and the jars of everybody's."""
    cache = Path(os.environ.get("SOJOURN_CACHE", Path.home() / ".cache" / "sojourn"))
    own = tmp_path / "cache"
    own.mkdir()
    (own / "jars").symlink_to(cache / "jars")
    command = [sys.executable, "-m", "sojourn.cli.main", "sql", "--lake", str(filled.root)]
    terminal = Terminal(command, environment(SOJOURN_CACHE=str(own)))
    terminal.until("sojourn>")
    yield terminal
    terminal.close()


@pytest.mark.spark
@pytest.mark.slow
def test_the_prompt_answers_describes_and_remembers(shell: Terminal, tmp_path: Path) -> None:
    shell.type("\\d tenant_backlog_now\r")
    assert "messages/s" in shell.until("drain_eta_seconds")
    shell.type("\\format csv\r")
    shell.until("format is csv")
    shell.type("\\timing\r")
    shell.until("timing is on")
    shell.type("SELECT sum(enqueued) AS total_number\r")  # not complete: the next line goes on
    shell.type("FROM parti\t")
    shell.until("partials")  # completed by Tab
    shell.type(";\r")
    shell.until("total_number\n3\n")
    shell.until(" s\n")
    shell.type("SELECT nothing FROM partials;\r")
    assert "\n" not in shell.until("error: the query failed").split("partials;")[-1].strip()
    shell.type("\x04")
    assert shell.exit_code() == 0
    history = tmp_path / "cache" / "sql-history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+FROM partials;" in history.read_text()


def test_ctrl_c_ends_the_statement_and_not_the_prompt(shell: Terminal) -> None:
    shell.type("\\format csv\r")
    shell.until("format is csv")
    shell.type(f"{ENDLESS};\r")
    shell.until("c;\n")
    shell.until_keys_are_signals()
    shell.type("\x03")
    shell.until("cancelled\n")
    shell.type("SELECT count(*) AS alive FROM partials;\r")
    shell.until("alive\n3\n")
    shell.type("\x04")
    assert shell.exit_code() == 0


def test_semicolons_end_statements_only_where_they_are_not_text() -> None:
    assert split('SELECT \';\' ; SELECT "a;\\"b" ;') == ["SELECT ';'", 'SELECT "a;\\"b"', ""]
    assert split("SELECT 1 /* ; */ -- ;\n") == ["SELECT 1 /* ; */ -- ;"]
    assert split("; -- nothing\n;") == [""]
    assert split("SELECT `a;b` FROM x;\nSELECT 2") == ["SELECT `a;b` FROM x", "SELECT 2"]


def test_what_there_is_names_every_public_view_and_its_columns() -> None:
    for name, columns in columns_of().items():
        assert name in listed()
        assert all(column in described(name) for column in columns)
    assert "did you mean queue_health?" in described("queue_healt")


def test_a_table_of_many_rows_says_that_it_shows_the_first() -> None:
    rows = pa.table({"n": range(TABLE_ROWS + 5)})
    text = FORMATS["table"](rows)
    assert str(TABLE_ROWS + 1) not in text
    assert text.endswith("10,005 rows\nthe first 10,000 are shown: --format csv or json writes all\n")
    assert FORMATS["csv"](rows).count("\n") == TABLE_ROWS + 6


def test_json_of_maps_is_objects_and_of_numbers_that_it_lacks_words() -> None:
    maps = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    rows = pa.table({"m": maps, "x": [float("nan")], "y": [[float("inf")]]})
    assert json.loads(FORMATS["json"](rows)) == {"m": {"a": "b"}, "x": "NaN", "y": ["Infinity"]}
    assert json.loads(FORMATS["json"](pa.table([[1], [2]], ["a", "b"]))) == {"a": 1, "b": 2}
