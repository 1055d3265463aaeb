"""``sojourn sql``: read-only Spark SQL over the lake's tables and views, one statement after the other."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lake.errors import SojournError, UserError
from lake.select import check, tables_of
from lake.sql.dialect import render
from lake.state import require_finished
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS
from spark_analytics.faults import explained, first_line, quieten
from spark_analytics.histograms import spell_out_merges
from spark_analytics.plans import check_plan
from spark_analytics.results import Result, collect
from spark_analytics.runtime.launch import Launch, begin
from spark_analytics.runtime.session import abandon, build_session, has_java
from spark_analytics.runtime.store import store_jars, store_settings
from spark_analytics.small import Small, hand_over
from spark_analytics.time_travel import AsOf
from spark_analytics.views import register, register_functions, require_finished_at

#: Classes of SQLSTATE that blame the statement: data exception (a division by zero), syntax or unknown name.
QUERY_AT_FAULT = ("22", "42")
#: For answers by the hundred rows: compiling a plan to Java costs more than it saves.
_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.maxResultSize": "0",  # results are streamed to a file, not held
}
#: How long a cancelled statement may go on before Spark is ended for it.
DEAF_SECONDS = 3.0
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


class Engine(enum.StrEnum):
    """Who works out what: the statement is Spark's, except with ``READER``."""

    AUTO = "auto"  #: the statement by Spark SQL, over views of modest size that the JVM-free reader worked out
    SPARK = "spark"  #: Spark works out the views too
    READER = "reader"  #: no Spark at all: Spark's dialect carried over to DuckDB's, in milliseconds


class SqlSession:
    """Where statements over one lake are answered by Spark. Starts its session in the background at once.

    ``ahead`` is a Java process that was begun before. One statement runs at a time; :meth:`cancel` may be called from
    another thread.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        as_of: AsOf | None = None,
        engine: Engine = Engine.AUTO,
        ahead: Launch | None = None,
    ) -> None:
        self._lake = lake
        self._as_of = as_of
        self._small = Small(lake, as_of) if engine is Engine.AUTO else None
        self._there: dict[str, object] = {}  # what the session holds, by name, and its state
        self._cancelled_at: float | None = None
        self._threads = ThreadPoolExecutor(1, "spark-session")
        self._session: Future[SparkSession] = self._threads.submit(_open, lake, ahead)

    def answer(self, sql: str) -> Result:
        """The rows of one SELECT. UserError, in one line, for what is no such query."""
        checked = check(sql, {*TABLES, *VIEWS})  # before Spark has started: a slip of the pen answers at once
        self._cancelled_at = None
        names = tables_of(checked)
        if self._as_of is None:
            require_finished(self._lake.root, names)
        else:
            require_finished_at(self._lake, names, self._as_of)
        rows, tokens = self._work_out(names)
        session = self._session.result()
        text = render(spell_out_merges(checked))
        try:
            self._hand_over(session, names, rows)
            self._there |= tokens  # only now: a statement that is cancelled before has handed over nothing
            if "histogram_quantile" in text.lower():
                register_functions(session)
            check_plan(session, text, {*TABLES, *VIEWS})
            return collect(session.sql(text))
        except (PySparkException, Py4JError, OSError, pa.ArrowException) as error:
            raise self._ended(error, session) from error

    def cancel(self) -> None:
        """Tell the statement that runs to end: it raises UserError. To be said again until it has ended.

        Plans and tight loops do not listen. When ``DEAF_SECONDS`` have passed, Spark itself is ended, and begun anew.
        """
        if not self._session.done() or self._session.exception() is not None:
            return
        now = time.monotonic()
        self._cancelled_at = self._cancelled_at or now
        if now - self._cancelled_at > DEAF_SECONDS:
            abandon()
            return
        with suppress(Py4JError, OSError):
            self._session.result().sparkContext.cancelAllJobs()

    def _ended(self, error: Exception, session: SparkSession) -> SojournError:
        if self._cancelled_at is None:
            return _said(error)
        self._recover(session, self._cancelled_at + DEAF_SECONDS)
        return UserError("cancelled")

    def _recover(self, session: SparkSession, deadline: float) -> None:
        """After a cancelled statement: a session without tasks that run on, this one or another."""
        while time.monotonic() < deadline:
            if _running_tasks(session) == 0:
                return
            time.sleep(0.05)
        abandon()
        self._there.clear()
        self._session = self._threads.submit(_open, self._lake, None)

    def close(self) -> None:
        """Nothing is asked any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _work_out(self, names: set[str]) -> tuple[Mapping[str, pa.Table | None], dict[str, object]]:
        """What is had without Spark and is not there yet (None: it is), with its state; meanwhile Spark starts."""
        found: dict[str, pa.Table | None] = {}
        tokens: dict[str, object] = {}
        for name in names:
            if self._small is None or not self._small.serves(name):
                continue
            token = self._small.token(name)
            if token is not None and self._there.get(name) == token:
                found[name] = None
                continue
            try:
                found[name] = self._small.rows(name)
            except SojournError:
                continue  # too much for the reader: Spark has the last word, on errors too
            tokens[name] = token
        return found, tokens

    def _hand_over(self, session: SparkSession, names: set[str], rows: Mapping[str, pa.Table | None]) -> None:
        for name, table in rows.items():
            if table is not None:
                hand_over(session, name, table)
        large = names - rows.keys()
        for setting, value in (_COMPILED if large else _INTERPRETED).items():
            session.conf.set(setting, value)
        if large:
            register(session, self._lake, large, as_of=self._as_of)


def query(lake_root: Path, sql: str) -> pa.Table:
    """The rows of ``sql`` over the lake at ``lake_root``. UserError for what is no such query, in one line."""
    lake = Lake(lake_root)
    lake.create()
    sql_session = SqlSession(lake)
    try:
        return sql_session.answer(sql).table()
    finally:
        sql_session.close()


def _open(lake: Lake, ahead: Launch | None) -> SparkSession:
    if ahead is None and not has_java():
        ahead = begin(lake=lake.root)  # without what surrounds us: see spark_analytics.runtime.confinement
    conf, jars = _CONF | store_settings(lake.tables), store_jars(lake.tables)
    session = build_session("sojourn-sql", conf=conf, quick_start=True, jars=jars, ahead=ahead)
    quieten(session)
    return session


def _running_tasks(session: SparkSession) -> int | None:
    """How many tasks run, cancelled ones included; None if Spark does not answer."""
    try:
        java: Any = session._jvm
        source = java.org.apache.spark.executor.Executor.executorSourceLocalModeOnly()
        return int(source.metricRegistry().getGauges().get("threadpool.activeTasks").getValue())
    except (Py4JError, OSError, AttributeError, TypeError):
        return None


def _said(error: Exception) -> SojournError:
    if isinstance(error, PySparkException) and (error.getSqlState() or "")[:2] in QUERY_AT_FAULT:
        return UserError(f"the query failed: {first_line(error)}", "docs/views.md lists views and columns")
    return explained(error)
