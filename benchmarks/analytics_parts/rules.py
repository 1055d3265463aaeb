"""What it costs that rules are evaluated in a process that can be killed: beside DuckDB in the rules' own process."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from alerts.rules.expression import bound, schema_of
from alerts.rules.loader import load_rules
from benchmarks.figures import Figure
from lake.definitions import Definitions
from lake.reader import connect
from lake.select import canonical, check, for_duckdb, tables_of
from lake.worker.worker import Worker

ROUNDS = 15


def measure(scale: float) -> Iterator[Figure]:
    """A round of the built-in rules over views of so many rows: with views just read anew, and with known ones."""
    with Worker(None) as worker:
        worker.query_over({}, "SELECT 1")
        worker.keep_spare()
        for count in (1_000, int(100_000 * scale)):
            asked = [(text, _views(tables, count)) for text, tables in _rules()]
            held = {name: table for _, views in asked for name, table in views.items()}
            asked = [(text, {name: held[name] for name in views}) for text, views in asked]
            anew = {name: (lambda t=table: pa.table(t.columns, schema=t.schema)) for name, table in held.items()}
            with connect(512) as connection:
                for name, table in held.items():
                    connection.register(name, table)
                inside, known, fresh = _medians(
                    lambda asked=asked, one=connection: [one.sql(text).to_arrow_table() for text, _ in asked],
                    lambda asked=asked: _ask(worker, asked, {}),
                    lambda asked=asked, anew=anew: _ask(worker, asked, {n: make() for n, make in anew.items()}),
                )
            yield Figure(f"rules_round_ms_known_views_{count}", known * 1000, "ms", inside * 1000)
            yield Figure(f"rules_round_ms_changed_views_{count}", fresh * 1000, "ms", inside * 1000)
        yield Figure("worker_back_seconds_with_spare", _restart(worker, spare=True), "s")
    with Worker(None, spare=False) as worker:
        yield Figure("worker_back_seconds", _restart(worker, spare=False), "s")


def _rules() -> list[tuple[str, frozenset[str]]]:
    found = []
    for rule in load_rules((), builtin=True):
        sql = bound(rule.expr, datetime.now(UTC), Definitions())
        text = for_duckdb(canonical(sql, rule.tables))
        found.append((text, frozenset(tables_of(check(sql, rule.tables)))))
    return found


def _views(names: frozenset[str], rows: int) -> dict[str, pa.Table]:
    return {name: pa.table([_column(f, rows) for f in schema_of(name)], schema=schema_of(name)) for name in names}


def _column(field: Any, rows: int) -> pa.Array:
    if pa.types.is_string(field.type):
        return pa.array([f"{field.name}-{row % 1000}" for row in range(rows)], field.type)
    if pa.types.is_timestamp(field.type):
        return pa.array([datetime.now(UTC) - timedelta(seconds=1)] * rows, field.type)
    if pa.types.is_boolean(field.type):
        return pa.array([row % 1000 == 0 for row in range(rows)], field.type)
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return pa.array(list(range(rows)), pa.int64()).cast(field.type, safe=False)
    return pa.nulls(rows, field.type)


def _ask(worker: Worker, asked: list[tuple[str, dict[str, pa.Table]]], anew: dict[str, pa.Table]) -> None:
    for text, views in asked:
        worker.query_over({name: anew.get(name, table) for name, table in views.items()}, text)


def _medians(*each: Callable[[], object]) -> list[float]:
    """In turn, so that what else the machine does meets all of them alike."""
    took: list[list[float]] = [[] for _ in each]
    for _ in range(ROUNDS):
        for what, times in zip(each, took, strict=True):
            started = time.perf_counter()
            what()
            times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in took]


def _restart(worker: Worker, *, spare: bool) -> float:
    """From a worker's death to the next answer, the worst of five."""
    took = []
    for _ in range(5):
        worker.query_over({}, "SELECT 1")
        if spare:
            time.sleep(3)  # the spare has loaded its modules
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        started = time.perf_counter()
        worker.query_over({}, "SELECT 1")
        took.append(time.perf_counter() - started)
    return max(took)
