"""The JVM-free reader: Spark-dialect SELECTs over the views, in milliseconds, for dashboards and rules.

The views' SQL is declared once (:mod:`lake.views`); here sqlglot carries it over to DuckDB's dialect. Spark runs the
same text for ad-hoc SQL, and a contract test holds both engines to the same rows.

Views build on one another. Each is worked out once for each state of the tables below it and kept as a table, so that a
hundred rules over one view cost hardly more than one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from lake.definitions import Definitions
from lake.errors import UserError, first_line
from lake.log import newest_from
from lake.now.serve import Served
from lake.planned import Planned
from lake.scoped import BY_BROKER, LARGE, SCOPED, Scope, ScopedSnapshot, of_brokers
from lake.select import canonical, check, for_duckdb, tables_of
from lake.snapshot import Snapshot
from lake.state import STAGES, State
from lake.state.stages import PAST, table_of, tables_of_stage
from lake.tables import QUEUE_STATE, TABLES
from lake.views import VIEWS, below, render
from lake.views.catalogue import bucket_value_sql
from lake.watchdog import WATCHDOG

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
_KNOWN = frozenset({*TABLES, *VIEWS})
#: What need not be worked out from all of history.
SERVED = tuple(STAGES)


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
        self._kept: dict[str, tuple[int, ...]] = {}
        self._definitions = Definitions.load(self.root)
        self._database = Planned(connect(memory_mb, spill))
        self._phase = phase
        self._state: State | None = None  # made when first asked for: most commands never ask
        self._served: Served | None = None
        self._given: dict[str, int] = {}
        self._there: frozenset[str] = frozenset()  # of finished state, and what of it has stages
        self._staged: frozenset[str] = frozenset()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything that is held in memory, at once, whoever still refers to the reader; it is of no use
        afterwards."""
        with self._lock:
            self._database.close()
            if self._served is not None:
                self._served.close()
            self._served = self._state = None
            self._snapshots.clear()

    def advance(self) -> None:
        """From now on a pinned reader answers from the lake as it is now."""
        with self._lock:
            self._taken.clear()

    def token(self, *tables: str) -> tuple[int, ...]:
        """The versions of ``tables`` (default: all): equal tokens, equal answers. Costs a directory look-up each."""
        with self._lock:
            return tuple(self._version(name) for name in tables or TABLES)

    def _version(self, name: str) -> int:
        snapshot = self._snapshots[name]
        known = newest_from(snapshot.path, self._versions.get(name, -1))
        self._versions[name] = snapshot.version() if known is None else known
        return self._versions[name]

    @property
    def finished(self) -> bool:
        """Whether the present was served from finished state when last asked for."""
        return self._state is not None and self._state.known

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
                    return self._database.answer(text)
            except duckdb.InterruptException as error:
                raise UserError(
                    f"the query took longer than {self._timeout:g} s", "narrow it, or use `sojourn sql`"
                ) from error
            except duckdb.Error as error:
                raise UserError(f"the query failed: {first_line(error)}", "fix the SQL") from error

    def _bring_up_to_date(self, names: set[str], columns: frozenset[str] | None) -> None:
        definitions = Definitions.load(self.root)
        if definitions != self._definitions:
            self._definitions = definitions
            self._kept.clear()
            self._served = self._state = None
            self._there = self._staged = frozenset()
            self._given.clear()
            self._taken.clear()
        # Of one queue's history its partials are less to hold than every row that was told of it.
        served = [name for name in SERVED if self._scope is None or not tables_of_stage(name) & PAST.keys()]
        given = self._serve(set(below(names, served)[1]).intersection(served), columns)
        tables, views = below(names, given)
        for name in tables:
            self._load(name)
        for name in views:
            if name not in given:
                self._keep(name, given)

    def _serve(self, names: set[str], columns: frozenset[str] | None) -> set[str]:
        """Those of the stages ``names`` that can be served, at their newest; the others have to be worked out."""
        if not names:
            return set()
        self._state = self._state or State(self.root)
        self._take("state", self._state.refresh)
        if self._state.known:
            if any("age_state_now" in tables_of_stage(name) for name in names):
                self._state.ask(columns)
            return self._serve_state(names, self._state)
        self._served = self._served or Served(self.root, self._definitions)
        self._take("served", self._served.refresh)
        given = set()
        for name in names:
            if (rows := self._served.table(name)) is None:
                continue
            given.add(name)
            if self._given.get(name) != self._served.generation:
                self._kept.pop(name, None)
                self._database.put(name, rows)
                self._given[name] = self._served.generation
        return given

    def _serve_state(self, names: set[str], state: State) -> set[str]:
        """The stages ``names`` over finished state; without those that it does not have."""
        if self._served is not None:
            self._served.close()  # until now there was none, and history was folded here
            self._served = None
        for held in sorted(frozenset().union(*map(tables_of_stage, names))):
            if held in PAST:
                self._tell_past(held, state)
                continue
            if self._given.get(held) == state.generation:
                continue
            if (rows := state.table(held)) is None:
                self._drop(held)
                self._there -= {held}
            else:
                self._database.put(held, rows)  # in the place of what was there before
                self._there |= {held}
            self._given[held] = state.generation
        if self._there != self._staged:
            self._stage(self._there)
        return {name for name in names if tables_of_stage(name) <= self._there}

    def _tell_past(self, name: str, state: State) -> None:
        """Have the rows of history ``name``, where finished state tells them."""
        if not state.tells_history(table_of(name)):
            self._drop(name)
            self._there -= {name}
            return
        for table in {table_of(name), QUEUE_STATE.name}:
            self._load(table)
        if name not in self._there:
            self._drop(name)
            text = to_duckdb(render(PAST[name], self._definitions))
            self._database.define(f"CREATE TEMP VIEW {name} AS {text}")
            self._there |= {name}

    def _stage(self, there: frozenset[str]) -> None:
        """Views for the stages that rest on what is ``there`` of finished state."""
        for name, stage in STAGES.items():
            self._drop(name)
            if tables_of_stage(name) <= there:
                text = to_duckdb(render(stage, self._definitions))
                self._database.define(f"CREATE TEMP VIEW {name} AS {text}")
        self._staged = there

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
                self._database.put(of_brokers(name), brokers)

    def _keep(self, name: str, given: set[str]) -> None:
        tables, views = below({name}, given)
        served = bool(given.intersection(views))
        versions = () if served else tuple(self._loaded[table] for table in tables)
        if self._kept.get(name) == versions and name not in _CLOCKED:
            return
        sql = to_duckdb(render(VIEWS[name], self._definitions))
        if self._scope is not None and name in BY_BROKER:
            sql = _by_broker(sql)
        if name in _FEW:
            self._database.put(name, self._database.answer(sql))
            self._kept[name] = versions
            return
        self._drop(name)
        # What stands on served rows asks for the columns that a query needs, no more; the rest is worked out once.
        self._database.define(f"CREATE TEMP {'VIEW' if served else 'TABLE'} {name} AS {sql}")
        self._kept[name] = versions

    def _drop(self, name: str) -> None:
        """Whatever stands under ``name``, a table or a view."""
        self._kept.pop(name, None)
        self._given.pop(name, None)
        self._database.drop(name)


@lru_cache(maxsize=1024)
def _understood(sql: str) -> tuple[str, frozenset[str], frozenset[str] | None]:
    """``sql`` as DuckDB may run it, the tables and views that it reads, and its names, those of the columns that it
    asks for among them; None where it may ask for all. Raises UserError where it is no such query."""
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
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


@cache
def _by_broker(sql: str) -> str:
    """``sql``, in DuckDB's dialect, over what is kept of whole brokers instead of the tables."""
    text = sqlglot.parse_one(sql, read="duckdb")
    for table in text.find_all(sqlglot.exp.Table):
        table.this.set("this", of_brokers(table.name))
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
