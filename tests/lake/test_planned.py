"""What is asked again is not planned again, and still answers by what is there when it is asked."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from lake.planned import FEW_ROWS, Planned
from lake.reader import connect

ALL = "SELECT * FROM numbers"
SUM = "SELECT COUNT(*) AS n, SUM(n)::BIGINT AS total FROM numbers"


@pytest.fixture
def database() -> Iterator[Planned]:
    made = Planned(connect(100))
    yield made
    made.close()


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def plans(database: Planned) -> int:
    """How many statements DuckDB keeps planned."""
    return database.answer("SELECT * FROM duckdb_prepared_statements()").num_rows


def test_rows_that_came_under_a_name_are_answered_by_the_plan_that_was_made_before(database: Planned) -> None:
    for values in ((1, 2), (3,), (), (), (), (None, 4), (), (5, 6, 7)):
        database.put("numbers", numbers(*values))
        assert database.answer(ALL).column("n").to_pylist() == list(values)
        assert database.answer(SUM).to_pylist() == [
            {"n": len(values), "total": sum(value or 0 for value in values) if any(values) else None}
        ]
    assert plans(database) == 2


def test_a_statement_that_is_asked_once_is_not_kept(database: Planned) -> None:
    database.put("numbers", numbers(1))
    database.answer(ALL)
    assert plans(database) == 0


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (pa.table({"n": pa.array(["a", "b"])}), [{"n": "a"}, {"n": "b"}]),
        (pa.table({"n": pa.array([1.5]), "more": pa.array([True])}), [{"n": 1.5, "more": True}]),
        (numbers(*range(FEW_ROWS + 1)), [{"n": value} for value in range(FEW_ROWS + 1)]),
    ],
    ids=["another type", "another column", "many rows"],
)
def test_what_no_plan_was_made_for_is_planned_anew(database: Planned, rows: pa.Table, told: object) -> None:
    for _ in range(3):
        database.put("numbers", numbers(1, 2))
        assert [database.answer(ALL).to_pylist() for _ in range(3)] == [[{"n": 1}, {"n": 2}]] * 3
        database.put("numbers", rows)
        assert [database.answer(ALL).to_pylist() for _ in range(3)] == [told] * 3


def test_what_had_no_rows_before_has_those_that_are_there_now_and_none_in_the_columns_of_now(database: Planned) -> None:
    some = "SELECT n, n > 1 AS more FROM numbers WHERE n > 0"
    for kind in (pa.int64(), pa.float64(), pa.int64()):
        for values in ([0], [0], [0], [2, 0], [1], [0], [0]):
            database.put("numbers", pa.table({"n": pa.array(values, kind)}))
            rows = database.answer(some)
            assert rows.schema == pa.schema({"n": kind, "more": pa.bool_()})
            assert rows.to_pylist() == [{"n": value, "more": value > 1} for value in values if value]


def test_a_plan_is_kept_while_only_others_change_and_forgotten_with_what_it_rests_on(database: Planned) -> None:
    database.put("numbers", numbers(1))
    database.define("CREATE TEMP VIEW twice AS SELECT 2 * n AS n FROM numbers", "twice")
    ask, rests_on = "SELECT * FROM twice", frozenset({"twice", "numbers"})
    assert [database.answer(ask, rests_on).to_pylist() for _ in range(2)] == [[{"n": 2}]] * 2
    for count in (FEW_ROWS + 1, FEW_ROWS + 2, 3):
        database.put("others", numbers(*range(count)))
        assert database.answer("SELECT COUNT(*) AS n FROM others", frozenset({"others"})).to_pylist() == [{"n": count}]
        assert ask in database._plans and database.answer(ask, rests_on).to_pylist() == [{"n": 2}]
        database.put("numbers", numbers(count))
        assert database.answer(ask, rests_on).to_pylist() == [{"n": 2 * count}]
        database.put("numbers", numbers(1))
    database.put("numbers", pa.table({"n": pa.array([1.5])}))
    assert [database.answer(ask, rests_on).to_pylist() for _ in range(2)] == [[{"n": 3.0}]] * 2
    database.drop("twice")
    database.define("CREATE TEMP VIEW twice AS SELECT 3 * n AS n FROM numbers", "twice")
    assert [database.answer(ask, rests_on).to_pylist() for _ in range(2)] == [[{"n": 4.5}]] * 2


def test_a_name_may_become_a_table_or_a_view_and_be_put_again(database: Planned) -> None:
    database.put("others", numbers(9))
    for kind in ("TABLE", "VIEW"):
        database.put("numbers", numbers(1))
        assert [database.answer(ALL).to_pylist() for _ in range(2)] == [[{"n": 1}]] * 2
        database.drop("numbers")
        with pytest.raises(duckdb.CatalogException):
            database.answer(ALL)
        database.define(f"CREATE TEMP {kind} numbers AS SELECT * FROM others")
        assert [database.answer(ALL).to_pylist() for _ in range(2)] == [[{"n": 9}]] * 2


def test_repeated_texts_may_be_others_each_time(database: Planned) -> None:
    text = "SELECT name, COUNT(*) AS n FROM names GROUP BY name ORDER BY name"
    for names in (["b", "a", "b"], ["c"], ["d", "b"]):
        database.put("names", pa.table({"name": pa.array(names).dictionary_encode()}))
        assert database.answer(text).column("name").to_pylist() == sorted({*names})


def test_a_clock_goes_on(database: Planned) -> None:
    database.put("numbers", numbers(1))
    seen = [database.answer("SELECT now() AS at, random() AS die FROM numbers").to_pylist()[0] for _ in range(4)]
    assert len({row["at"] for row in seen}) == len({row["die"] for row in seen}) == 4


def test_a_statement_that_fails_fails_again_and_the_next_is_answered(database: Planned) -> None:
    database.put("numbers", numbers(0))
    for _ in range(3):
        with pytest.raises(duckdb.Error):
            database.answer("SELECT nothing FROM numbers")
        with pytest.raises(duckdb.Error):
            database.answer("SELECT CAST('x' || n AS INT) FROM numbers")
        assert database.answer(ALL).to_pylist() == [{"n": 0}]


def test_of_ever_other_statements_the_oldest_are_let_go(database: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.planned.MOST_STATEMENTS", 5)
    database.put("numbers", numbers(1))
    for number in range(10):
        for _ in range(2):
            assert database.answer(f"SELECT n + {number} AS n FROM numbers").to_pylist() == [{"n": 1 + number}]
    assert 0 < plans(database) <= 5


def test_whatever_the_number_of_rows_was_before_the_newest_are_told(database: Planned) -> None:
    for count in (1, FEW_ROWS + 1, 3, FEW_ROWS + 2, FEW_ROWS + 3, 0, 2):
        database.put("numbers", numbers(*range(count)))
        for _ in range(3):
            assert database.answer(ALL).column("n").to_pylist() == list(range(count))
            assert database.answer(SUM).column("n").to_pylist() == [count]
    assert plans(database) == 2
