"""One reading of each `…_now` view serves all rules of a round; what cannot have another answer is not asked again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial

import pyarrow as pa

from alerts.dependence import Condition, Dependence, conditions, dependence
from alerts.evaluate import Query
from alerts.rules.expression import ENGINE_VIEWS
from alerts.rules.prepared import at_time, names_time
from lake.errors import SojournError
from lake.lean import trim
from lake.select import canonical, check, for_duckdb, tables_of, with_values, without_values
from lake.tables import TABLES
from lake.views import VIEWS
from lake.worker.worker import Given, Worker

#: A view is left alone for this many times as long as reading it took: rules must not starve what feeds them.
PACE = 3.0
#: No reading counts for less (seconds): what is held already must not be infinitely urgent.
LEAST_COST = 0.02
#: A view of a row or two that a built-in rule reads: held as well, so that it costs no process that reads history.
_SMALL = frozenset({"open_gaps"})
#: Of these views rows are shown beside an alert, whatever rules ask: they are held whole. Of the others those columns
#: that some statement has named: histograms of ages are most of what there is to hold.
_WHOLE = frozenset({"queue_health_now", "tenant_backlog_now"})
#: So many statements' answers are remembered, those of more rules than anybody has, and none with more rows.
_MOST_ANSWERS, _MOST_ROWS = 4096, 10_000
#: A view of more rows than this, unless it is held whole, is with the rules' process alone, each reading of it another
#: one; and behind the next statement memory is given back.
_MANY_ROWS = 50_000
_KNOWN = frozenset({*VIEWS, *TABLES, *ENGINE_VIEWS})
#: What a column looked like: equal numbers, equal columns. By view and column; "" is how many rows the view has.
_Signature = tuple[tuple[str, str, int], ...]


class _Held:
    """One view, in memory or Given away, with a number for each of its columns that changes when the column does."""

    def __init__(self, rows: pa.Table | Given, number: int) -> None:
        self.rows = rows
        self.numbers = dict.fromkeys(("", *rows.column_names), number)

    def replace(self, rows: pa.Table | Given, number: int) -> None:
        """Hold ``rows`` instead; rows that are the same leave everything as it was, the very table included."""
        before = self.rows
        if (
            isinstance(rows, Given)
            or isinstance(before, Given)
            or (rows.schema, rows.num_rows) != (before.schema, before.num_rows)
        ):
            self.__init__(rows, number)  # type: ignore[misc]
        elif changed := [name for name in rows.column_names if not rows.column(name).equals(before.column(name))]:
            self.rows = rows
            self.numbers |= dict.fromkeys(changed, number)


@dataclass(frozen=True, slots=True)
class _Answer:
    rows: pa.Table
    at: datetime | None  # of which evaluation time; None: of any
    saw: _Signature
    decided: _Signature | None  # by what there is no row; None: there are rows, or everything may have decided it


class ViewCache:
    """Answers queries from views held in memory, and asks the lake for everything else. Belongs to one thread.

    A statement runs when one of the columns that it reads has changed since it ran last (:mod:`alerts.dependence`), or
    where it looks at a clock; otherwise it has the rows that it had, the very table. One that failed always runs again.
    One that had no rows does not run where a condition of it, over columns that are as they were, has none.

    ``query`` reads the views themselves, again where the end of ``worker``, in which runs what rules say of them, cost
    it what it alone had. What they ask of tables and history is answered by ``history``, which should be another
    process.
    """

    def __init__(self, query: Query, worker: Worker, history: Query) -> None:
        self._query = query
        self._worker = worker
        self._history = history
        self._held: dict[str, _Held] = {}
        self._columns: dict[str, tuple[str, ...]] = {}  # by view those that are read
        self._number = 0
        self._answers: dict[str, _Answer] = {}
        self._conditions: dict[str, tuple[_Signature, bool | None]] = {}  # and whether it has no row; None: not asked
        self._outdated: dict[str, bool] = {}  # by the name of what is held
        self._costs: dict[str, float] = {}
        self._read_at: dict[str, float] = {}
        self._read_many = False  # since memory was given back

    def put(self, name: str, table: pa.Table | Given) -> None:
        """Hold ``table`` under ``name``."""
        self._number += 1
        if (held := self._held.get(name)) is None:
            self._held[name] = _Held(table, self._number)
        else:
            held.replace(table, self._number)
        self._outdated[name] = False

    def held(self, name: str) -> pa.Table | None:
        """What was last read of the view ``name``, if it is held here; may be asked from any thread."""
        held = self._held.get(name)
        return held.rows if held is not None and isinstance(held.rows, pa.Table) else None

    def outdate(self) -> None:
        """There is new data: what is held is no longer the newest."""
        self._outdated = dict.fromkeys(self._outdated, True)

    def outdated(self, tables: Iterable[str]) -> bool:
        """Whether any of the views among ``tables`` would have to be read again."""
        return any(_is_held(name) and self._outdated.get(name, True) for name in tables)

    def may_read(self, tables: Iterable[str]) -> bool:
        """Whether the views among ``tables`` are up to date, or may be read again already."""
        now = time.monotonic()
        return all(
            not self._outdated.get(name, True)
            or now - self._read_at.get(name, -float("inf")) >= PACE * self._costs.get(name, 0.0)
            for name in tables
        )

    def refresh(self, tables: Iterable[str]) -> None:
        """Read those views among ``tables`` again that are out of date, and of which something was asked."""
        for name in sorted(tables):
            if name in self._columns and self._outdated.get(name, True):
                started = time.monotonic()
                try:
                    read = partial(self._query, f"SELECT {', '.join(self._columns[name])} FROM {name}")
                    rows = read()
                    many = rows.num_rows > _MANY_ROWS
                    self._read_many |= many
                    self.put(name, Given(rows, read) if many and name not in _WHOLE else rows)
                    del rows
                finally:
                    self._read_at[name] = time.monotonic()
                    self._costs[name] = self._read_at[name] - started

    def query(self, sql: str, at: datetime | None = None) -> pa.Table:
        """The rows of the checked SELECT ``sql``, over views as they were last read.

        ``at``: the time for which SOME_TIME stands in it (:mod:`alerts.rules.prepared`), so that it is understood once.
        """
        text, tables, depends = _understood(sql)
        at = at if names_time(text) else None
        if not all(name in self._held or name in _SMALL or _is_held(name) for name in tables):
            return self._history(sql if at is None else at_time(sql, at))
        asked = text if at is None else at_time(text, at)
        wider = {name for name in tables if self._widen(name, depends.columns)}
        self.refresh(wider | (tables - self._held.keys()))
        if not depends.settled:
            return self._over(tables, asked)
        known, saw = self._answers.get(text), self._signature(tables, depends.columns)
        same_time = known is not None and known.at == at
        if known is not None and same_time and known.saw == saw:
            return known.rows
        decides = None if depends.deciding is None else self._signature(tables, depends.deciding)
        if known is not None and same_time and known.decided is not None and known.decided == decides:
            return known.rows
        if known is not None and not known.rows.num_rows and self._is_ruled_out(text):
            return known.rows
        rows = self._over(tables, asked)
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
            self._conditions.clear()
        if rows.num_rows <= _MOST_ROWS:
            self._answers[text] = _Answer(rows, at, saw, None if rows.num_rows else decides)
        return rows

    def _over(self, tables: Iterable[str], text: str) -> pa.Table:
        """The rows of ``text``, over what was last read of ``tables``."""
        rows = self._worker.query_over(self._rows_of(tables), text)
        if self._read_many:  # what was held before is free now, and what was Given, all over the heap
            self._read_many = False
            trim()
        return rows

    def _is_ruled_out(self, text: str) -> bool:
        """Whether something that the statement ``text`` asks of its rows is true of none, for all that is held."""
        return any(self._has_none(condition) for condition in _conditions(text))

    def _has_none(self, condition: Condition) -> bool:
        """Whether no row is like that; asked once columns have stayed as they are from one time to the next."""
        saw = self._signature((condition.table,), condition.columns)
        before, none = self._conditions.get(condition.text, ((), None))
        if before == saw and none is None:
            try:
                rows = self._over((condition.table,), condition.text)
                none = not rows.num_rows
            except SojournError:  # the statement itself will say why
                none = False
        self._conditions[condition.text] = saw, none if before == saw else None
        return bool(none) and before == saw

    def _widen(self, name: str, columns: frozenset[str] | None) -> bool:
        """Have ``columns`` (None: all) of the view ``name`` read from now on; whether they were not until now."""
        if name not in VIEWS or not (_is_held(name) or name in _SMALL):
            return False
        if name in self._held and name not in self._columns:  # somebody has put it there
            return False
        every, known = tuple(column.name for column in VIEWS[name].columns), self._columns.get(name, ())
        wanted = every
        if columns is not None and name not in _WHOLE:  # a table without any column would have no rows either
            wanted = tuple(each for each in every if each in known or each in columns) or every[:1]
        if wanted == known:
            return False
        self._columns[name], self._outdated[name] = wanted, True
        return True

    def _rows_of(self, tables: Iterable[str]) -> dict[str, pa.Table | Given]:
        return {name: self._held[name].rows for name in tables}

    def _signature(self, tables: Iterable[str], columns: frozenset[str] | None) -> _Signature:
        """Equal signatures, equal ``columns`` of ``tables``, and as many rows."""
        return tuple(
            (table, column, number)
            for table in sorted(tables)
            for column, number in self._held[table].numbers.items()
            if columns is None or column in columns or not column
        )

    def urgency(self, tables: Iterable[str], at: float) -> float:
        """How long ``tables`` have waited to be read at ``at`` (monotonic seconds), as a multiple of what that takes.

        Cheap ones go often and expensive ones in turn: by cost alone, new data would let the cheap starve the rest.
        """
        waits = [
            (at - self._read_at.get(name, -float("inf"))) / (self._costs.get(name, 0.0) + LEAST_COST)
            for name in tables
            if self._outdated.get(name, True)
        ]
        return max(waits, default=0.0)

    def close(self) -> None:
        """Let go of everything."""
        self._held.clear()
        self._answers.clear()
        self._conditions.clear()


def _understood(sql: str) -> tuple[str, frozenset[str], Dependence]:
    """``sql`` as DuckDB may run it, the views that it reads, and what its answer depends on."""
    pattern, values = without_values(sql)
    text, tables, depends = _understood_once(pattern)
    return with_values(text, values), tables, depends


@lru_cache(maxsize=1024)
def _understood_once(sql: str) -> tuple[str, frozenset[str], Dependence]:
    text, query = for_duckdb(canonical(sql, _KNOWN)), check(sql, _KNOWN)
    return text, frozenset(tables_of(query)), dependence(query, text)


@lru_cache(maxsize=1024)
def _conditions(text: str) -> tuple[Condition, ...]:
    return tuple(one for one in conditions(text) if not names_time(one.text))


def _is_held(name: str) -> bool:
    return name.endswith("_now")
