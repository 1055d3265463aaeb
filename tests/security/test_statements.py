"""Hostile statements have no effect, wherever SQL comes in and whichever engine answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.memory import Memory, MemoryQueryError
from alerts.rules.expression import checked
from lake.errors import SojournError, UserError
from lake.reader import Reader
from lake.select import canonical, check_expression, for_duckdb
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS
from spark_analytics.sql import SqlSession
from tests.security.statements import CONTENT, SECRET, STATEMENTS, VARIABLE, placed

NAMES = {*TABLES, *VIEWS}
TEXTS = [sql for _, sql in STATEMENTS]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A file that must not come to be, and one that must not be read; a secret in the environment."""
    readable = tmp_path / "readable"
    readable.write_text(CONTENT)
    monkeypatch.setenv(VARIABLE, SECRET)
    return tmp_path / "marker", readable


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """Over an empty lake."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        lake.create()
        with Reader(lake.root) as reader:
            yield reader


def assert_harmless(text: str, marker: Path) -> None:
    """``text`` is an answer, or an error: it tells nothing, and nothing was done."""
    assert SECRET not in text
    assert CONTENT not in text
    assert str(os.environ["PATH"]) not in text
    assert not marker.exists()


def test_every_statement_has_a_name_of_its_own() -> None:
    names = [name for name, _ in STATEMENTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("sql", TEXTS, ids=[name for name, _ in STATEMENTS])
def test_what_is_not_refused_calls_nothing_that_matters(sql: str) -> None:
    try:
        text = canonical(sql, NAMES)
    except UserError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1000
        return
    assert canonical(text, NAMES) == text
    for word in ("reflect", "TRANSFORM", "USING", "@", "${", "/*", "--"):
        assert word not in text


def test_expressions_are_no_way_around() -> None:
    for _, sql in STATEMENTS:
        try:
            text = check_expression(sql.removeprefix("SELECT "))
        except UserError:
            continue
        assert "reflect" not in text


def test_the_reader_does_and_tells_nothing(reader: Reader, places: tuple[Path, Path]) -> None:
    for _, sql in STATEMENTS:
        try:
            text = str(reader.query(placed(sql, *places)).to_pylist())
        except UserError as error:
            text = str(error)
        assert_harmless(text, places[0])


def test_rules_do_and_tell_nothing(places: tuple[Path, Path]) -> None:
    memory = Memory()
    for _, sql in STATEMENTS:
        expr = placed(sql, *places).replace(" AS b", " AS value")
        for run in (checked, memory.query):
            try:
                text = str(run(expr))
            except (UserError, MemoryQueryError) as error:
                text = str(error)
            assert_harmless(text, places[0])
    memory.close()


@pytest.mark.spark
def test_the_prompt_and_files_do_and_tell_nothing(spark: object, lake: Lake, places: tuple[Path, Path]) -> None:
    sql_session = SqlSession(lake)
    for _, sql in STATEMENTS:
        try:
            text = str(sql_session.answer(placed(sql, *places)).table().to_pylist())
        except SojournError as error:
            text = str(error)
        assert_harmless(text, places[0])
    sql_session.close()


@pytest.mark.parametrize(
    "text",
    ["SELECT 'a", "SELECT getenv('HOME')", "SELECT read_text('/etc/passwd')", "SELECT \"read_text\"('x')"],
)
def test_duckdb_is_held_to_its_own_functions(text: str) -> None:
    with pytest.raises(UserError):
        for_duckdb(text.replace('"', "`"))
