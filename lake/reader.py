"""The JVM-free reader: Spark-dialect SELECTs over the views, in milliseconds, for dashboards and rules.

The views' SQL is declared once (:mod:`lake.views`); here sqlglot carries it over to DuckDB's dialect. Spark runs the
same text for ad-hoc SQL, and a contract test holds both engines to the same rows.

Views build on one another. Each is worked out once for each state of the tables below it and kept as a table, so that a
hundred rules over one view cost hardly more than one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from lake.definitions import Definitions
from lake.errors import UserError, first_line
from lake.finished import QUEUE_STATE
from lake.log import newest_from
from lake.planned import Planned
from lake.remote import Location
from lake.scoped import BROKERS, BY_BROKER, LARGE, SCOPED, Scope, ScopedSnapshot
from lake.select import canonical, check, for_duckdb, tables_of, with_values, without_values
from lake.snapshot import FileGone, Snapshot
from lake.state import State
from lake.tables import TABLES
from lake.views import VIEWS, below, columns_below, render
from lake.views.catalogue import HISTORY, NEWEST, bucket_value_sql
from lake.views.depend import parsed
from lake.views.model import View
from lake.watchdog import WATCHDOG

#: What Arrow says of a file that is not there, when a statement comes to it.
_LOST = re.compile(r"Failed to open local file '([^']+)'")
#: Functions that Spark has and DuckDB lacks, and Sojourn's own for histograms.
_MACROS = """
CREATE MACRO timestamp_micros(micros) AS make_timestamptz(micros);
CREATE MACRO histogram_merge(histogram) AS flatten(list(histogram));
CREATE MACRO histogram_quantile(histogram, q) AS (
  SELECT bucket_value(MIN(bucket)) FROM (
    SELECT bucket, SUM(n) OVER (ORDER BY bucket) AS so_far, SUM(n) OVER () AS total
    FROM (SELECT cell.index AS bucket, SUM(cell.count) AS n FROM (SELECT unnest(histogram) AS cell) GROUP BY 1)
  ) WHERE so_far >= GREATEST(1, CEIL(q * total))
);
"""

#: A query that runs longer is a mistake: it would delay every rule behind it.
DEFAULT_TIMEOUT_SECONDS = 20.0
#: What DuckDB may hold, in MB (10⁶ bytes).
DEFAULT_MEMORY_MB = 1000

#: Views whose rows depend on the clock, not on the tables alone: never kept.
_CLOCKED = frozenset({"limits"})
#: Views of a row or two on which the views of the present stand: their rows are exchanged, so that plans last.
_FEW = frozenset({"open_gaps", "stage_history"})
_KNOWN = frozenset({*TABLES, *VIEWS}) - {*NEWEST}
#: What stands on these rows is asked for the columns that a query needs, no more; the rest is worked out once.
_STATE = frozenset({*NEWEST, *HISTORY})


class Reader:
    """Queries over the lake at ``root``. Safe to share between threads: one query runs at a time.

    Its limits are DuckDB's: a statement can go beyond them inside one function. What strangers wrote is for
    :class:`lake.worker.worker.Worker`. ``phase`` is told of each query when views are brought up to date for it
    ("preparing"), and when its own text runs ("running"). A ``pinned`` reader answers from the lake as it was when
    first asked, until :meth:`advance`: what is read one after the other belongs together. One with a ``scope`` holds
    that queue's history alone, and is asked about no other queue: what it says of the others is not true. One without
    ``hold`` keeps no rows of history: for questions about few columns, or a short time, of a large table. What does not
    fit in ``memory_mb`` goes to files in the folder ``spill``, where one is given, instead of ending the query.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        memory_mb: int = DEFAULT_MEMORY_MB,
        phase: Callable[[str], None] = lambda _: None,
        pinned: bool = False,
        scope: Scope | None = None,
        hold: bool = True,
        spill: Path | None = None,
    ) -> None:
        self._scope = scope
        self._beside = frozenset() if scope is None else frozenset({BROKERS})  # on which views may rest as well
        self._pinned = pinned
        self._taken: set[str] = set()  # what was brought up to date since the last advance
        self.root = Path(root).expanduser().absolute()
        self._timeout = timeout_seconds
        self._lock = threading.Lock()
        self._snapshots = {
            name: Snapshot(spec, self.root, hold=hold or name not in LARGE)
            if scope is None or name not in SCOPED
            else ScopedSnapshot(spec, self.root, scope)
            for name, spec in TABLES.items()
        }
        self._versions: dict[str, int] = {}
        self._loaded: dict[str, int] = {}
        self._kept: dict[str, tuple[str | int, ...]] = {}
        self._definitions = Definitions.load(self.root)
        self._database = Planned(connect(memory_mb, spill))
        self._phase = phase
        self._state: State | None = None  # made when first asked for: most commands never ask
        self._given: dict[str, int] = {}  # of which generation the rows are that finished state gave

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything that is held in memory, at once, whoever still refers to the reader; it is of no use
        afterwards."""
        with self._lock:
            self._database.close()
            self._state = None
            self._snapshots.clear()

    def advance(self) -> None:
        """From now on a pinned reader answers from the lake as it is now."""
        with self._lock:
            self._taken.clear()

    @property
    def held_of_scope(self) -> int:
        """The bytes of the rows that are held of its queue; 0 without a scope."""
        with self._lock:
            return sum(one.held for one in self._snapshots.values() if isinstance(one, ScopedSnapshot))

    def token(self, *tables: str) -> tuple[int, ...]:
        """The versions of ``tables`` (default: all): equal tokens, equal answers. Costs a directory look-up each."""
        with self._lock:
            return tuple(self._version(name) for name in tables or TABLES)

    def place(self, name: str) -> Location:
        """Where table ``name`` is."""
        return self._snapshots[name].path

    def _version(self, name: str) -> int:
        snapshot = self._snapshots[name]
        known = newest_from(snapshot.path, self._versions.get(name, -1))
        self._versions[name] = snapshot.version() if known is None else known
        return self._versions[name]

    def query(self, sql: str) -> pa.Table:
        """The rows of one read-only SELECT, in Spark's dialect, over the views and tables.

        Raises UserError for what is not such a query, or takes too long.
        """
        text, names, columns = _understood(sql)
        with self._lock:
            try:
                with WATCHDOG.within(self._timeout, self._database.interrupt):
                    self._phase("preparing")
                    self._bring_up_to_date(set(names), columns)
                    self._phase("running")
                    return self._database.answer(text, _below(names) | self._beside)
            except duckdb.InterruptException as error:
                raise UserError(
                    f"the query took longer than {self._timeout:g} s", "narrow it, or use `sojourn sql`"
                ) from error
            except duckdb.Error as error:
                if lost := _LOST.search(str(error)):
                    raise FileGone(lost[1]) from error
                raise UserError(f"the query failed: {first_line(error)}", "fix the SQL") from error

    def _bring_up_to_date(self, names: set[str], columns: frozenset[str] | None) -> None:
        definitions = Definitions.load(self.root)
        if definitions != self._definitions:
            self._definitions = definitions
            self._kept.clear()
            self._taken.clear()
        tables, views = below(names, NEWEST)
        if self._scope is not None:
            self._ask_of_scope(tables, frozenset(names), columns)
        for name in tables:
            self._load(name)
        for name in views:
            if name in NEWEST:
                self._give(name, columns)
            else:
                self._keep(VIEWS[name], *self._rests_on(name))

    def _ask_of_scope(self, tables: Iterable[str], names: frozenset[str], columns: frozenset[str] | None) -> None:
        """Have those columns of the queue's rows in ``tables`` that the ``columns`` of ``names`` rest on."""
        # What a pinned reader is asked later would be read from a later state.
        wanted = None if columns is None or self._pinned else columns_below(names, columns)
        for name in tables:
            snapshot = self._snapshots[name]
            if isinstance(snapshot, ScopedSnapshot) and snapshot.ask(wanted):
                self._loaded.pop(name, None)

    def _rests_on(self, name: str) -> tuple[tuple[int, ...], bool]:
        """The versions of the tables that view ``name`` rests on, and whether it stands on finished state."""
        tables, views = below({name}, NEWEST)
        return tuple(self._loaded[table] for table in tables), not _STATE.isdisjoint(views)

    def _give(self, name: str, columns: frozenset[str] | None) -> None:
        """Have the rows of ``name``, one of NEWEST, at their newest, of which the ``columns`` are asked for."""
        state = self._state = self._state or State(self.root)
        self._take("state", state.refresh)
        if name == "age_state_now":
            state.ask(columns)
        if self._given.get(name) != state.generation:
            self._database.put(name, state.table(name))  # in the place of what was there before
            self._given[name] = state.generation

    def _take(self, what: str, refresh: Callable[[], None]) -> None:
        """Bring ``what`` up to date, unless it is pinned."""
        if not (self._pinned and what in self._taken):
            refresh()
            self._taken.add(what)

    def _load(self, name: str) -> None:
        self._take(name, lambda: self._loaded_anew(name))

    def _loaded_anew(self, name: str) -> None:
        snapshot = self._snapshots[name]
        scannable, version = snapshot.current(self._loaded.get(name))
        if scannable is not None:
            self._database.put(name, scannable)
            self._loaded[name] = version
            if isinstance(snapshot, ScopedSnapshot) and (brokers := snapshot.brokers()) is not None:
                self._database.put(BROKERS, brokers)

    def _keep(self, view: View, versions: tuple[int, ...], over_state: bool) -> None:
        kept: tuple[str | int, ...] = (view.sql,) if over_state else (view.sql, *versions)
        if self._kept.get(view.name) == kept and view.name not in _CLOCKED:
            return
        sql = to_duckdb(render(view, self._definitions))
        if self._scope is not None and view.name == BY_BROKER:
            sql = _by_broker(sql)
        if view.name in _FEW:
            self._database.put(view.name, self._database.answer(sql))
            self._kept[view.name] = kept
            return
        self._drop(view.name)
        self._database.define(f"CREATE TEMP {'VIEW' if over_state else 'TABLE'} {view.name} AS {sql}", view.name)
        self._kept[view.name] = kept

    def _drop(self, name: str) -> None:
        """Whatever stands under ``name``, a table or a view."""
        self._kept.pop(name, None)
        self._given.pop(name, None)
        self._database.drop(name)


@lru_cache(maxsize=1024)
def _below(names: frozenset[str]) -> frozenset[str]:
    """All that the tables and views ``names`` rest on, themselves included."""
    tables, views = below(names)
    return frozenset({*tables, *views})


def _understood(sql: str) -> tuple[str, frozenset[str], frozenset[str] | None]:
    """``sql`` as DuckDB may run it, the tables and views that it reads, and its names, those of the columns that it
    asks for among them; None where it may ask for all. Raises UserError where it is no such query."""
    pattern, values = without_values(sql)
    try:
        text, names, columns = _understood_once(pattern)
    except UserError:
        return _understood_once(sql)  # which says what is wrong in its own words
    return with_values(text, values), names, columns


@lru_cache(maxsize=1024)
def _understood_once(sql: str) -> tuple[str, frozenset[str], frozenset[str] | None]:
    statement = check(sql, _KNOWN)
    columns = None if _may_ask_for_all(statement) else frozenset(
        name.name.lower() for name in statement.find_all(exp.Identifier)
    )  # fmt: skip
    return for_duckdb(canonical(sql, _KNOWN)), frozenset(tables_of(statement)), columns


def _may_ask_for_all(statement: Any) -> bool:
    """Whether a query has columns that it does not name: by a star, a natural join, or a table's rows as values."""
    if any(star.parent is None or star.parent.name.lower() != "count" for star in statement.find_all(exp.Star)):
        return True
    if any(join.method for join in statement.find_all(exp.Join)):
        return True
    tables = {table.alias_or_name.lower() for table in statement.find_all(exp.Table, exp.Subquery, exp.CTE)}
    return any(column.name.lower() in tables for column in statement.find_all(exp.Column))


@cache
def to_duckdb(sql: str) -> str:
    """A view's own ``sql``, in Spark's dialect, in DuckDB's: what others ask goes through :mod:`lake.select`."""
    return str(parsed(sql).sql("duckdb"))


@cache
def _by_broker(sql: str) -> str:
    """``sql``, in DuckDB's dialect, over what is kept of whole brokers instead of the tables."""
    text = sqlglot.parse_one(sql, read="duckdb")
    for table in text.find_all(exp.Table):
        if table.name == QUEUE_STATE.name:
            table.this.set("this", BROKERS)
    return text.sql(dialect="duckdb")


def connect(memory_mb: int, spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """An empty DuckDB that reaches nothing outside, with the functions that views and rules may use."""
    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "threads": "1",  # questions are small: a second thread costs more than it brings
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": str(spill or ""),  # else nothing is written beside the lake
            "python_enable_replacements": "false",
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    value = to_duckdb(f"SELECT {bucket_value_sql('bucket')}").removeprefix("SELECT ")
    connection.execute(f"CREATE MACRO bucket_value(bucket) AS {value}")
    connection.execute(_MACROS)
    return connection
