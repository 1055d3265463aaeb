"""A rule that is asked only when its rows can have changed says at each step what one says that is always asked."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from alerts.answer import Identities
from alerts.aside import rule_worker
from alerts.dependence import UNSETTLED, conditions, dependence
from alerts.evaluate import Freshness, Outcome, Query, RuleMemory, evaluate
from alerts.rules.expression import ENGINE_VIEWS, bound, checked, schema_of
from alerts.rules.loader import load_rules
from alerts.rules.model import Rule
from alerts.rules.prepared import SOME_TIME
from alerts.views_cache import ViewCache
from lake.definitions import Definitions
from lake.errors import UserError
from lake.reader import connect
from lake.select import _checked, canonical, check, for_duckdb
from lake.sql.functions import judgement
from lake.tables import TABLES
from lake.views import VIEWS
from lake.worker.worker import Overrun, Worker
from tests.support.deep import examples

START = datetime(2026, 1, 1, tzinfo=UTC)
KNOWN = {*VIEWS, *TABLES, *ENGINE_VIEWS}


def rule(name: str, expr: str, **more: Any) -> Rule:
    return Rule("g", name, expr, tables=checked(expr), **more)


#: Beside the shipped rules, each way of reading that may be mistaken; q stands for the queues' view.
_ODD = {
    "Star": "SELECT * FROM (SELECT queue, depth AS value, in_flight FROM q) WHERE value > 2",
    "Counted": "SELECT COUNT(*) AS value FROM q HAVING COUNT(*) <> 2",
    "Aggregate": "SELECT SUM(depth) AS value FROM q WHERE depth > 3",
    "Alias": "SELECT queue, depth + in_flight AS value FROM q WHERE mode = 'backlogged' LIMIT 2",
    "Within": "SELECT queue, depth AS value FROM q WHERE depth > (SELECT AVG(depth) FROM q)",
    "With": "WITH some AS (SELECT queue, depth FROM q WHERE depth > 1) SELECT queue, depth AS value FROM some",
    "Distinct": "SELECT DISTINCT queue, 1 AS value FROM tenant_backlog_now WHERE noisy",
    "Using": "SELECT queue, depth AS value FROM q JOIN data_freshness USING (broker) WHERE NOT stale",
    "Outer": "SELECT f.broker, 1 AS value FROM data_freshness AS f"
    " LEFT JOIN q AS h ON h.broker = f.broker AND h.depth > 2 WHERE h.queue IS NULL",
    "Grouped": "SELECT queue, SUM(depth) AS value FROM q WHERE mode = 'backlogged' AND depth > 0 GROUP BY queue",
    "RolledUp": "SELECT queue, SUM(depth) AS value FROM q WHERE mode = 'fast' GROUP BY ROLLUP (queue)",
    "Left": "SELECT f.broker, 1 AS value FROM data_freshness AS f"
    " LEFT JOIN q AS h ON h.broker = f.broker AND h.depth > 2 WHERE h.mode IS NULL AND f.sampled",
    "Right": "SELECT h.queue, 1 AS value FROM data_freshness AS f"
    " RIGHT JOIN q AS h ON h.broker = f.broker WHERE f.stale IS NULL AND h.depth > 0",
    "Many": "SELECT queue, in_flight AS value FROM q WHERE consumers = 0 AND in_flight >= 0 AND status = 'OK'",
    "Clock": "SELECT queue, 1 AS value FROM q WHERE as_of > :evaluation_time - INTERVAL 3 SECONDS",
    "Fails": "SELECT queue, 1 / (depth - 2) AS value FROM q WHERE CAST(mode AS INT) > 1",
    "Twice": "SELECT mode, depth AS value FROM q",
}


@cache
def rules() -> tuple[Rule, ...]:
    """The shipped ones, those and one that holds."""
    odd = (rule(name, re.sub(r"\bq\b", "queue_health_now", expr)) for name, expr in _ODD.items())
    held = rule(
        "Held",
        "SELECT queue, depth AS value FROM queue_health_now WHERE depth > 2",
        hold=timedelta(seconds=3),
        keep_firing_for=timedelta(seconds=4),
    )
    return (*load_rules((), builtin=True), *odd, held)


#: Few values for each column, so that conditions come and go.
_VALUES: dict[str, tuple[Any, ...]] = {
    "mode": ("fast", "backlogged", None),
    "drain_state": ("idle", "growing", "stalled"),
    "status": ("OK", "LOST", None),
    "kind": ("first_attempt", "completion"),
}


class World:
    """Views that change at random, a column of a view at a time, a row more or less, or not at all."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.views = {name: self._rows(name, 2) for rule in rules() for name in sorted(rule.tables)}

    def change(self) -> None:
        for name in self.random.sample(sorted(self.views), self.random.randrange(4)):
            rows = self.views[name]
            if self.random.random() < 0.2:
                self.views[name] = self._rows(name, self.random.randrange(4))
            elif rows.num_rows:
                at = self.random.randrange(rows.num_columns)
                field = rows.schema.field(at)
                self.views[name] = rows.set_column(at, field, self._column(field, rows.num_rows))

    def _rows(self, name: str, count: int) -> pa.Table:
        schema = schema_of(name)
        return pa.Table.from_arrays([self._column(field, count) for field in schema], schema=schema)

    def _column(self, field: pa.Field, count: int) -> pa.Array:
        if field.name in ("broker", "queue", "tenant", "subscriber"):
            return pa.array([f"{field.name}{row}" for row in range(count)], field.type)
        return pa.array([self._value(field) for _ in range(count)], field.type)

    def _value(self, field: pa.Field) -> Any:
        if (values := _VALUES.get(field.name)) is not None:
            return self.random.choice(values)
        if pa.types.is_timestamp(field.type):
            return START + timedelta(seconds=self.random.randrange(5))
        if pa.types.is_boolean(field.type):
            return self.random.random() < 0.5
        if pa.types.is_floating(field.type):
            return self.random.choice((0.0, 0.5, 2.0, 100.0, None))
        if pa.types.is_integer(field.type):
            return self.random.choice((0, 1, 3, 200, None))
        return None if pa.types.is_nested(field.type) else self.random.choice(("a", "b", None))


class Counting:
    """A worker that counts what it is asked, and fails when told to."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.asked, self.failing = worker, 0, False

    def query_over(self, tables: dict[str, pa.Table], sql: str) -> pa.Table:
        self.asked += 1
        if self.failing:
            raise Overrun("it took too long")
        return self.worker.query_over(tables, sql)


@pytest.fixture
def always() -> Iterator[Callable[[dict[str, pa.Table], str], pa.Table]]:
    """Rows of a statement, worked out anew each time."""
    connection = connect(500)

    def query(views: dict[str, pa.Table], sql: str) -> pa.Table:
        for name, rows in views.items():
            connection.register(name, rows)
        try:
            return connection.sql(for_duckdb(canonical(sql, KNOWN))).to_arrow_table()
        except duckdb.Error as error:
            raise UserError("the query failed") from error

    yield query
    connection.close()


def _anew(always: Callable[..., pa.Table], world: World, sql: str, _: str) -> pa.Table:
    return always(world.views, sql)


def told(outcome: Outcome) -> tuple[Any, ...]:
    """What matters of an outcome; errors by whether there is one. Rows have no order, nor what they make happen."""
    moved = sorted(outcome.transitions, key=lambda transition: transition.alert.fingerprint)
    return outcome.evaluation.ok, dict(outcome.memory.alerts), moved, outcome.memory.evaluated_to


@pytest.mark.parametrize("seed", range(examples(1, 2)))
def test_asked_on_change_or_always_the_states_are_the_same(seed: int, always: Callable[..., pa.Table]) -> None:
    world, worker = World(seed), Counting(rule_worker())
    cache = ViewCache(lambda sql: world.views[sql.rpartition(" ")[2]], worker, always)  # type: ignore[arg-type]
    memories = [{one.key: (RuleMemory(), Identities()) for one in rules()} for _ in range(2)]
    evaluations = 0
    for step in range(8):
        world.change()
        cache.outdate()
        for name in ENGINE_VIEWS:
            if name in world.views:
                cache.put(name, world.views[name])
        now = START + timedelta(seconds=step / 2)
        for one in rules():
            sql = bound(one.expr, now, Definitions())

            def on_change(expr: str, one: Rule = one, now: datetime = now) -> pa.Table:
                cache.refresh(one.tables)
                return cache.query(bound(expr, SOME_TIME, Definitions()), now)

            outcomes = []
            queries: tuple[Query, ...] = (on_change, partial(_anew, always, world, sql))
            for memory, query in zip(memories, queries, strict=True):
                known, identities = memory[one.key]
                outcomes.append(evaluate(one, known, query, Freshness(now, now, False), now, identities))
                memory[one.key] = outcomes[-1].memory, identities
            evaluations += 1
            assert told(outcomes[0]) == told(outcomes[1]), f"seed {seed}, step {step}, rule {one.name}"
    assert worker.asked < evaluations / 2


def test_a_statement_that_names_its_time_is_understood_and_remembered_once() -> None:
    """It was parsed anew at each evaluation, and each of its answers was kept beside those of other times."""
    asked: list[str] = []
    rows, worker = pa.table({"broker": ["b"], "queue": ["q"], "as_of": [START], "mode": ["fast"]}), rule_worker()
    cache = ViewCache(lambda _: pytest.fail("nothing is read"), worker, lambda sql: asked.append(sql) or rows)  # type: ignore[func-returns-value]
    cache.put("queue_health_now", rows)
    clock = "SELECT queue FROM queue_health_now WHERE as_of > :evaluation_time - INTERVAL 3 SECONDS"
    past = "SELECT queue FROM queue_health WHERE as_of > :evaluation_time"
    told = [bound(one, SOME_TIME, Definitions()) for one in (clock, past)]
    before = _checked.cache_info().misses
    found = [cache.query(told[0], START + timedelta(seconds=seconds)).num_rows for seconds in range(6)]
    assert found == [1, 1, 1, 0, 0, 0]
    for seconds in range(3):
        cache.query(told[1], START + timedelta(seconds=seconds))
    assert asked == [bound(past, START + timedelta(seconds=seconds), Definitions()) for seconds in range(3)]
    assert _checked.cache_info().misses <= before + 2
    assert len(cache._answers) == 1


def test_what_failed_is_asked_again_and_what_is_the_same_is_not() -> None:
    world, worker = World(0), Counting(rule_worker())
    cache = ViewCache(lambda sql: world.views[sql.rpartition(" ")[2]], worker, lambda _: pa.table({}))  # type: ignore[arg-type]
    sql = "SELECT queue, depth AS value FROM queue_health_now WHERE depth >= 0"
    worker.failing = True
    for _ in range(2):
        with pytest.raises(Overrun):
            cache.query(sql)
    worker.failing = False
    first = cache.query(sql)
    cache.outdate()
    cache.refresh(("queue_health_now",))
    assert (cache.query(sql) is first, worker.asked) == (True, 3)
    clock = "SELECT queue, 1 AS value FROM queue_health_now WHERE as_of > now()"
    cache.query(clock)
    cache.query(clock)
    assert worker.asked == 5


def test_what_one_condition_rules_out_is_not_asked_when_the_columns_of_others_change() -> None:
    schema, worker = schema_of("queue_health_now"), Counting(rule_worker())

    def view(**values: Any) -> pa.Table:
        rows = [{"broker": "b", "queue": f"q{place}", **values} for place in range(3)]
        return pa.Table.from_pylist(rows, schema)

    held = view(consumers=3, depth=0)
    cache = ViewCache(lambda _: held, worker, lambda _: pa.table({}))  # type: ignore[arg-type]
    sql = "SELECT queue, depth AS value FROM queue_health_now WHERE consumers = 0 AND depth > 0"

    def asked(rows: pa.Table) -> tuple[int, int]:
        nonlocal held
        held, before = rows, worker.asked
        cache.outdate()
        cache.refresh(("queue_health_now",))
        return cache.query(sql).num_rows, worker.asked - before

    asked(view(consumers=3, depth=0))
    asked(view(consumers=3, depth=1))
    assert asked(view(consumers=3, depth=2)) == (0, 1), "the condition, as its column has stayed for a while"
    assert asked(view(consumers=3, depth=3)) == asked(view(consumers=3, depth=4)) == (0, 0)
    assert asked(view(consumers=0, depth=5)) == (3, 1)
    assert asked(view(consumers=0, depth=6)) == (3, 1)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT queue FROM q WHERE a = 1 AND b > c", ["a", "b, c"]),
        ("SELECT queue FROM q WHERE a = 1 OR b > c", ["a, b, c"]),
        ("SELECT SUM(d) AS s FROM q WHERE a = 1", []),
        ("SELECT queue, SUM(d) AS s FROM q WHERE a = 1 GROUP BY queue", ["a"]),
        ("SELECT queue, SUM(d) AS s FROM q WHERE a = 1 GROUP BY ROLLUP (queue)", []),
        ("SELECT queue FROM q WHERE a = 1 AND CAST(b AS INT) = 2", []),
        ("SELECT queue FROM q WHERE a = 1 AND b = (SELECT 1)", []),
        ("SELECT q.queue FROM q JOIN r ON q.x = r.x WHERE q.a = 1 AND r.b = 2 AND q.c = r.c", ["a", "b"]),
        ("SELECT q.queue FROM q LEFT JOIN r ON q.x = r.x WHERE q.a = 1 AND r.b IS NULL", ["a"]),
        ("SELECT q.queue FROM q RIGHT JOIN r ON q.x = r.x WHERE q.a IS NULL AND r.b = 2", []),
        ("SELECT q.queue FROM q JOIN r ON q.x = r.x WHERE a = 1", []),
        ("SELECT queue FROM (SELECT * FROM q) AS q WHERE a = 1", []),
        ("SELECT queue FROM q WHERE a = 1 UNION ALL SELECT queue FROM r", []),
    ],
)
def test_what_a_statement_asks_of_single_rows(sql: str, found: list[str]) -> None:
    assert [", ".join(sorted(one.columns)) for one in conditions(sql)] == found


@pytest.mark.parametrize(
    ("sql", "columns", "deciding"),
    [
        ("SELECT queue, depth AS value FROM queue_health_now WHERE mode = 'x'", {"queue", "depth", "mode"}, {"mode"}),
        ("SELECT queue, depth AS value FROM queue_health_now WHERE value > 1", {"queue", "depth"}, None),
        ("SELECT * FROM queue_health_now WHERE depth > 1", None, None),
        ("SELECT h FROM queue_health_now AS h", None, None),
        ("SELECT queue FROM queue_health_now NATURAL JOIN data_freshness", None, None),
        ("SELECT MAX(depth) AS value FROM queue_health_now WHERE mode = 'x'", {"depth", "mode"}, None),
        ("SELECT queue, MAX(depth) AS v FROM queue_health_now GROUP BY queue", {"queue", "depth"}, None),
        ("SELECT EXPLODE(ARRAY(depth)) AS value FROM queue_health_now WHERE mode = 'x'", {"depth", "mode"}, None),
    ],
)
def test_what_an_answer_depends_on(sql: str, columns: set[str] | None, deciding: set[str] | None) -> None:
    view = set(schema_of("queue_health_now").names)
    depends = dependence(check(sql, KNOWN), sql)
    assert depends.settled
    assert (depends.columns and depends.columns & view) == columns
    assert (depends.deciding and depends.deciding & view) == deciding


def test_every_function_that_gives_other_values_over_the_same_rows_is_known() -> None:
    connection = connect(200)
    named = connection.sql("SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'").fetchall()
    allowed = judgement("duckdb").allowed
    assert {name.lower() for (name,) in named if name.lower() in allowed} <= UNSETTLED
    connection.close()


def test_what_is_held_can_be_read_by_others() -> None:
    rows = pa.table({"broker": ["nats"], "queue": ["orders"]})
    cache = ViewCache(rule_worker().query, rule_worker(), rule_worker().query)
    cache.put("queue_health_now", rows)
    held = cache.held("queue_health_now")
    assert held is not None and held.equals(rows), "a page's evidence is read from it"
    assert cache.held("concurrency_now") is None


def test_many_rows_are_with_the_rules_process_alone_and_read_again_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("alerts.views_cache._MANY_ROWS", 0)
    asked, worker = list[str](), Worker(None, spare=False)
    rows = pa.table({"queue": ["q"]})

    def query(sql: str) -> pa.Table:
        asked.append(sql)
        return rows

    with worker:
        views = ViewCache(query, worker, lambda _: pytest.fail("no history"))
        assert views.query("SELECT queue FROM concurrency_now").to_pylist() == [{"queue": "q"}]
        assert views.held("concurrency_now") is None
        assert views.query("SELECT COUNT(queue) AS n FROM concurrency_now").to_pylist() == [{"n": 1}]
        assert len(asked) == 1
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        assert views.query("SELECT MAX(queue) AS most FROM concurrency_now").to_pylist() == [{"most": "q"}]
        assert len(asked) == 2
        rows = pa.table({"queue": ["p"]})
        views.outdate()
        views.refresh({"concurrency_now"})
        assert views.query("SELECT queue FROM concurrency_now").to_pylist() == [{"queue": "p"}]


def test_of_ages_those_columns_are_read_that_some_statement_names() -> None:
    asked: list[str] = []
    rows = pa.Table.from_pylist(
        [{"broker": "b", "queue": "q", "kind": "retry", "count": 3, "histogram": [{"index": 1, "count": 3}]}],
        schema_of("attempt_age_now"),
    )
    connection = connect(100)
    connection.register("attempt_age_now", rows)

    def query(sql: str) -> pa.Table:
        asked.append(sql)
        return connection.sql(sql).to_arrow_table()

    views = ViewCache(query, rule_worker(), lambda _: pytest.fail("no history"))
    assert views.query("SELECT COUNT(*) AS n FROM attempt_age_now").to_pylist() == [{"n": 1}]
    views.refresh({"attempt_age_now"})
    assert views.query("SELECT a.queue FROM attempt_age_now AS a WHERE a.count > 2").to_pylist() == [{"queue": "q"}]
    assert views.query("SELECT queue FROM attempt_age_now").num_rows == 1
    views.outdate()
    views.refresh({"attempt_age_now"})
    assert asked == [
        f"SELECT {columns} FROM attempt_age_now" for columns in ("bucket_start", *["bucket_start, queue, count"] * 2)
    ]
    [row] = views.query("SELECT * FROM attempt_age_now").to_pylist()
    assert row == rows.to_pylist()[0]
    connection.close()
