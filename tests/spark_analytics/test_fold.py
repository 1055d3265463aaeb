"""The parts of the reader's memory, each by itself."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from lake.formula import compiled
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.cells import NONE, UNKNOWN, OpenCells, code_of
from spark_analytics.fold.lived import Consumers
from spark_analytics.fold.pauses import Mark, Pauses
from spark_analytics.fold.state import State


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CASE WHEN a > 2 THEN a ELSE 0 END", [0, 0, 3]),
        ("GREATEST(0, a - 2)", [0, 0, 1]),
        ("LEAST(CAST(0.6 AS DOUBLE), CAST(2 AS DOUBLE) / GREATEST(a, 1))", [0.6, 0.6, 0.6]),
        ("-a", [-1, -2, -3]),
    ],
)
def test_a_formula_says_the_same_over_columns_as_in_sql(sql: str, expected: list[float]) -> None:
    assert np.asarray(compiled(sql)({"a": np.array([1, 2, 3])})).tolist() == expected


def test_a_null_number_is_no_reason_and_no_outcome() -> None:
    formula = compiled("CASE WHEN a > 1 THEN 'large' WHEN a IS NULL THEN NULL ELSE 'small' END")
    assert formula({"a": np.array([2.0, np.nan, 0.0])}).tolist() == ["large", "", "small"]


def test_what_is_more_than_a_formula_is_refused() -> None:
    with pytest.raises(ValueError, match="not a formula"):
        compiled("SUM(a) OVER (PARTITION BY b)")


@pytest.mark.parametrize("name", ["backlog", "ready", "threshold", "enters", "turns_quiet", "finished", "busy"])
def test_the_formulas_of_the_views_agree_with_an_sql_engine_over_random_rows(name: str) -> None:
    rng = np.random.default_rng(3)
    names = ["backlog_sum", "in_flight_sum", "delayed_sum", "active_tenants", "queue_ready", "ready", "in_flight",
             "threshold", "queue_in_flight", "window_processing_sum", "queue_processing_sum", "backlog", "enters",
             "at_second", "last_arrival_second", "completed", "dead_lettered", "expired", "sidelined", "started",
             "finished_unreceived"]  # fmt: skip
    rows = {column: rng.integers(0, 400, 200) for column in names} | {"threshold": rng.random(200)}
    sql = FORMULAS[name].replace("p.", "").replace("AS DOUBLE", "AS REAL").replace("GREATEST", "MAX")
    ours = np.asarray(compiled(FORMULAS[name])(rows), np.float64)
    with sqlite3.connect(":memory:") as engine:
        engine.execute(f"CREATE TABLE rows ({', '.join(names)})")
        engine.executemany(
            f"INSERT INTO rows VALUES ({', '.join('?' * len(names))})",
            list(zip(*(rows[column].tolist() for column in names), strict=True)),
        )
        theirs = [row[0] for row in engine.execute(f"SELECT {sql.replace('LEAST', 'MIN')} FROM rows")]
    assert ours.tolist() == pytest.approx(theirs)


def test_the_oldest_message_is_that_of_the_first_open_cell() -> None:
    cells, keys = OpenCells(), np.array([1, 2])
    assert cells.oldest(keys).tolist() == [NONE, NONE]
    cells.add(code_of([1, 1, 2], [10, 20, 15]), np.array([2, 1, 1]))
    assert cells.oldest(keys).tolist() == [10, 15]
    cells.add(code_of([1, 2], [10, 15]), np.array([-2, -1]))
    assert cells.oldest(keys).tolist() == [20, NONE]
    assert len(cells) == 1


def test_leavers_of_unknown_age_were_the_oldest() -> None:
    cells, keys = OpenCells(), np.array([1])
    cells.add(code_of([1, 1, 1], [UNKNOWN, 10, 20]), np.array([-2, 2, 1]))
    assert cells.oldest(keys).tolist() == [20]
    cells.add(code_of([1], [UNKNOWN]), np.array([2]))
    assert cells.oldest(keys).tolist() == [10]


def test_a_mode_lasts_since_it_turned_and_is_taken_back_as_it_was() -> None:
    state = State()
    consumer = np.array([state.consumer("q", "")])
    before = [state.turn(consumer, np.array([mode], np.int8), at) for mode, at in ((2, 10), (3, 20), (3, 30))]
    assert (state.modes[0], state.since_us[0]) == (3, 20)
    for each, (mode, since) in zip(reversed(before), ((3, 20), (2, 10), (0, 0)), strict=True):
        state.turn_back(consumer, each)
        assert (state.modes[0], state.since_us[0]) == (mode, since)


def test_a_queue_that_nobody_consumes_has_its_unnamed_consumer_until_somebody_does() -> None:
    consumers = Consumers()
    assert not consumers.note("q", "", False)
    assert consumers.of("q") == {""}
    assert consumers.note("q", "billing", True)
    assert consumers.of("q") == {"billing"}
    assert consumers.note("q", "", True)
    assert consumers.of("q") == {"", "billing"}


def mark(event_type: str, attempt: int | None, second: int) -> Mark:
    return Mark("q", "", "acme", "m", event_type, attempt, second)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_pauses_begin_and_end_alike_in_whatever_order_marks_come(order: tuple[int, ...]) -> None:
    marks = [mark("failed", 1, 10), mark("received", 2, 20), mark("completed", 2, 30)]
    pauses, edges = Pauses(), dict[int, int]()
    for place in order:
        for (second, _), (waiting, delayed) in pauses.add([marks[place]]).items():
            assert delayed == 0
            edges[second] = edges.get(second, 0) + waiting
    assert {second: step for second, step in edges.items() if step} == {10: 1, 20: -1}
