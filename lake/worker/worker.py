"""What others ask of SQL that can be killed: the statement that goes too far fails, and nobody else notices."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.address import address_of
from lake.errors import SojournError, UserError
from lake.worker.process import SPARES, Process
from lake.worker.wire import Late, WireError

if TYPE_CHECKING:  # what it stands on is read in the worker's own process alone
    from lake.scoped import Scope

#: A statement that runs longer is a mistake: it would delay every one behind it.
TIMEOUT_SECONDS = 20.0
#: What a worker may hold beyond its bare self: the tables that it keeps, and what a statement needs.
MEMORY_MB = 2048
#: For how long a worker may bring its views up to date; that is our own work, and a large lake's takes a while.
PREPARE_SECONDS = 900.0
#: The reader interrupts a statement at its time limit; what cannot be interrupted is killed so much later.
GRACE_SECONDS = 1.0
_MIB = 1024 * 1024


class Overrun(UserError):
    """The statement took too long, needed too much memory, or ended the process that ran it."""


class Given:
    """A table for a worker that nobody else needs: its rows until a process has them, and how to have them for another
    process once more."""

    def __init__(self, rows: pa.Table, again: Callable[[], pa.Table]) -> None:
        self.column_names = rows.column_names
        self._rows: pa.Table | None = rows
        self._again = again

    def take(self) -> pa.Table:
        """The rows, which are let go of."""
        rows, self._rows = self._rows, None
        return self._again() if rows is None else rows


class Worker:
    """Read-only SQL over the lake at ``root`` (None: over given tables alone), in a process of its own.

    Safe to share between threads: one statement runs at a time. The process is started when first needed. When it dies,
    by its limits or from outside, the next statement runs in another, and tables go there again. With ``spare`` another
    one is kept ready meanwhile; with ``idle_seconds`` the process ends when nobody asks for so long.
    """

    def __init__(
        self,
        root: Path | None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        memory_mb: int = MEMORY_MB,
        spare: bool = True,
        idle_seconds: float | None = None,
    ) -> None:
        self._timeout = timeout_seconds
        self._memory_mb = memory_mb
        self._spare = spare
        self._hello = {
            "root": None if root is None else str(root.expanduser().absolute()),
            "timeout_seconds": timeout_seconds,
            "memory_mb": memory_mb,
            "idle_seconds": idle_seconds,
        }
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._answered = 0  # by this process
        self._sent: dict[str, weakref.ref[pa.Table | Given]] = {}  # what it has, by name
        self._cancelled = False
        self._closed = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the process that runs statements now."""
        process = self._process
        return None if process is None else process.pid

    def query(self, sql: str, scope: Scope | None = None, *, hold: bool = True) -> pa.Table:
        """The rows of one read-only SELECT, in Spark's dialect, over the lake's views and tables.

        One that is about a single queue, and says so by ``scope``, costs that queue's history alone; one without
        ``hold`` is for a table of which nothing shall be kept (:class:`lake.reader.Reader`).
        Raises UserError for what is not such a query, Overrun for one that goes beyond its limits.
        """
        told = None if scope is None else asdict(scope)
        return self._run({"do": "query", "sql": sql, "scope": told, "hold": hold}, {})

    def query_over(self, tables: Mapping[str, pa.Table | Given], sql: str) -> pa.Table:
        """The rows of ``sql``, a checked SELECT in DuckDB's dialect, over ``tables`` by name.

        The process keeps the tables: the same ones cost nothing the next time; of those that are Given it has the rows
        alone.
        Raises UserError where it cannot be run, Overrun where it goes beyond its limits.
        """
        return self._run({"do": "over", "sql": sql, "over": [*tables]}, tables)

    def token(self, *tables: str) -> tuple[int, ...]:
        """The versions of ``tables``, as :meth:`lake.reader.Reader.token`."""
        with self._lock:
            return tuple(self._tried({"do": "token", "tables": tables}, {})[0]["token"])

    def keep_spare(self) -> None:
        """From now on, keep another process ready."""
        self._spare = True

    def cancel(self) -> None:
        """End the statement that runs, or waits for a process to run in; from another thread."""
        if self._lock.locked():
            self._cancelled = True
            if (process := self._process) is not None:
                process.interrupt()

    def close(self) -> None:
        """End the process; the worker is of no use afterwards."""
        self._closed = True
        self.cancel()
        with self._lock:
            self._end()

    def _run(self, request: dict[str, Any], tables: Mapping[str, pa.Table | Given]) -> pa.Table:
        with self._lock:
            table = self._tried(request, tables)[1]
        if self._spare:
            SPARES.refill()
        return table

    def _tried(
        self, request: dict[str, Any], tables: Mapping[str, pa.Table | Given]
    ) -> tuple[dict[str, Any], pa.Table | None]:
        """The answer; asked a second time, in a fresh process, where the first one's end may not be its fault: killed
        from outside, or full of what was asked before."""
        self._cancelled = False
        for last in (False, True):
            fresh = self._begin()
            if self._cancelled:  # while a process was started for it
                raise UserError("cancelled")
            try:
                return self._ask(request, tables)
            except (WireError, MemoryError) as error:
                code = self._end()
                if self._cancelled or self._closed:
                    raise UserError("cancelled") from error
                if isinstance(error, Late):
                    raise Overrun(f"the query took longer than {self._timeout:g} s", "narrow it") from error
                if last or (fresh and isinstance(error, MemoryError)):
                    raise self._fault(error, code) from error
        raise AssertionError("the second time decides")

    def _fault(self, error: Exception, code: int) -> Overrun:
        needed = f"more than {self._memory_mb} MB of memory"
        if isinstance(error, MemoryError):
            return Overrun(f"the query needed {needed}", "narrow it")
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return Overrun(f"the query ended the process that ran it ({how}); perhaps it needed {needed}", "narrow it")

    def _begin(self) -> bool:
        """Have a process; whether it is one that has answered nothing yet."""
        if self._closed:
            raise SojournError("this SQL worker is closed")
        if self._process is not None and not self._process.alive:
            self._end()
        if self._process is None:
            self._answered = 0
            process = SPARES.take()
            try:
                process.begin(self._hello | self._store(), self._memory_mb * _MIB)
            except WireError as error:
                code = process.kill()
                raise SojournError(f"the process to run SQL in did not start ({error}, code {code})") from error
            except BaseException:
                process.kill()
                raise
            self._process = process
        return not self._answered

    def _store(self) -> dict[str, Any]:
        """How a lake in an object store is reached: the process, whose environment is bare, could not find out."""
        root = self._hello["root"]
        address = None if root is None else address_of(Path(str(root)))
        return {} if address is None else {"store": address.options()}

    def _ask(
        self, request: dict[str, Any], tables: Mapping[str, pa.Table | Given]
    ) -> tuple[dict[str, Any], pa.Table | None]:
        process = self._process
        assert process is not None
        with self._ended_unless_answered():
            for name, table in tables.items():
                known = self._sent.get(name)
                if known is None or known() is not table:
                    process.send({"do": "put", "name": name}, table.take() if isinstance(table, Given) else table)
                    self._sent[name] = weakref.ref(table)
            process.send(request)
            patience = self._timeout + GRACE_SECONDS
            for seconds in (patience, PREPARE_SECONDS, patience):
                reply = process.receive(seconds)
                if "phase" not in reply[0]:
                    break
        self._answered += 1
        header, rows = reply
        _raise(header)
        if rows is None and request["do"] != "token":
            raise WireError("an answer without rows")
        return reply

    @contextlib.contextmanager
    def _ended_unless_answered(self) -> Iterator[None]:
        """A statement that was left in the middle (Ctrl-C) leaves an answer behind that is nobody's."""
        try:
            yield
        except (WireError, UserError):
            raise
        except BaseException:
            self._end()
            raise

    def _end(self) -> int:
        process, self._process = self._process, None
        self._sent.clear()
        return 0 if process is None else process.kill()


def _raise(header: dict[str, Any]) -> None:
    """What ``header`` says went wrong, if anything."""
    kind = header.get("error")
    if kind is None:
        return
    what, fix = str(header.get("what", "")), str(header.get("fix", ""))
    if kind == "memory":
        raise MemoryError(what)
    raise UserError(what, fix) if kind == "user" else SojournError(what)
