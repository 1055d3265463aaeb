"""What the worker process does: it takes tables, and answers statements, one after the other."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from lake.errors import SojournError, UserError, first_line
from lake.lean import trim
from lake.planned import FEW_ROWS, Planned, quoted
from lake.reader import Reader, connect
from lake.remote import give_options
from lake.scoped import Scope
from lake.worker.limits import limit, limit_cpu
from lake.worker.wire import Closed, Late, Wire

_OUT_OF_MEMORY = (MemoryError, duckdb.OutOfMemoryException)
#: A table of more than FEW_ROWS that so many statements have read is copied into DuckDB's own form: reading that takes
#: a third of the time, the copying as long as ten statements.
_COPIED_AFTER = 8
_COPY = '"a copy that is being made"'
#: So many queues' histories are held at once, while they have no more than one part in so many of the worker's memory.
MOST_SCOPES, SCOPES_SHARE = 8, 16
#: A queue's history that nobody has asked about for so many seconds is let go of: pictures of it rest for minutes.
SCOPE_SECONDS = 30.0
#: From its parent, a worker takes what it is given.
_MOST = 1 << 40


def serve(reads: int, writes: int) -> None:
    """Say that we are ready, be told the lake and the limits, then answer until the parent is gone, or asks no more."""
    wire = Wire(reads, writes, most=_MOST)
    wire.send({"ready": True})
    try:
        hello, _ = wire.receive()
        session = _Session(wire, hello)
        limit(hello["memory_mb"])
        idle = hello["idle_seconds"]
        while True:
            deadline = None if idle is None else time.monotonic() + idle
            while (until := session.holds_until()) is not None and not wire.brings(until):
                session.let_go_of_scopes()
            session.take(*wire.receive(deadline=deadline))
    except (Closed, Late):
        return


class _Session:
    """A reader over the lake, made when it is first asked; and a database of what was put."""

    def __init__(self, wire: Wire, hello: dict[str, Any]) -> None:
        self._wire = wire
        self._root: str | None = hello["root"]
        if self._root is not None and "store" in hello:
            give_options(Path(self._root), hello["store"])
        self._timeout: float = hello["timeout_seconds"]
        self._database_mb = max(64, hello["memory_mb"] // 2)
        self._scopes_bytes = hello["memory_mb"] * 2**20 // SCOPES_SHARE
        self._readers: OrderedDict[tuple[Scope | None, bool], Reader] = OrderedDict()
        self._asked: dict[tuple[Scope | None, bool], float] = {}  # when, of those with a scope
        self._held: Planned | None = None
        self._given: dict[str, int] = {}  # large tables as they came, and how many statements have read each

    def take(self, request: dict[str, Any], table: pa.Table | None) -> None:
        """Do what ``request`` says and, unless it puts a table, answer."""
        if request["do"] == "put":
            self._put(request["name"], table)
            return
        limit_cpu(self._timeout)
        try:
            header, rows = self._answer(request)
        except Exception as error:
            header, rows = _told(error), None
        self._wire.send(header, rows)

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], pa.Table | None]:
        match request["do"]:
            case "query":
                scope = request["scope"]
                reader = self._lake(None if scope is None else Scope(**scope), hold=request["hold"])
                rows = reader.query(request["sql"])
                if scope is not None:
                    self.let_go_of_scopes()
                if not request["hold"]:
                    trim()  # of a large table of which nothing is kept: 45 MB of 330, in 8 ms
                return {}, rows
            case "over":
                self._copy(request["over"])
                return {}, self._database.answer(request["sql"])
            case "token":
                return {"token": self._lake().token(*request["tables"])}, None
        raise SojournError(f"a worker cannot {request['do']}")

    def _put(self, name: str, table: pa.Table | None) -> None:
        assert table is not None
        self._database.put(name, table)
        if table.num_rows > FEW_ROWS:
            self._given[name] = 0
        else:
            self._given.pop(name, None)

    def _copy(self, names: Sequence[str]) -> None:
        """Note that a statement reads ``names``, and copy what is read often."""
        for name in names:
            if name not in self._given:
                continue
            self._given[name] += 1
            if self._given[name] != _COPIED_AFTER:
                continue
            with contextlib.suppress(*_OUT_OF_MEMORY):  # then it stays as it came
                self._database.define(f"CREATE TABLE {_COPY} AS SELECT * FROM {quoted(name)}")
                self._database.drop(name)
                self._database.define(f"ALTER TABLE {_COPY} RENAME TO {quoted(name)}")
                del self._given[name]

    @property
    def _database(self) -> Planned:
        self._held = self._held or Planned(connect(self._database_mb))
        return self._held

    def _lake(self, scope: Scope | None = None, *, hold: bool = True) -> Reader:
        """The reader of the whole lake, or of one queue; of those, the ones that were asked last are kept."""
        if self._root is None:
            raise SojournError("this worker has no lake")
        which = scope, hold
        if which not in self._readers:
            self._readers[which] = Reader(
                Path(self._root),
                timeout_seconds=self._timeout,
                memory_mb=self._database_mb,
                phase=self._tell,
                scope=scope,
                hold=hold,
            )
        self._readers.move_to_end(which)
        if scope is not None:
            self._asked[which] = time.monotonic()
        return self._readers[which]

    def holds_until(self) -> float | None:
        """When (monotonic seconds) the queue that was asked about longest ago is let go of; None: there is none."""
        return min(self._asked.values()) + SCOPE_SECONDS if self._asked else None

    def let_go_of_scopes(self) -> None:
        """Close the readers of queues that nobody has asked about for SCOPE_SECONDS, and of the others those that were
        asked about longest ago, beyond what may be held; never the last."""
        held = {known: self._readers[known].held_of_scope for known in self._readers if known in self._asked}
        before, now = len(held), time.monotonic()
        for place, known in enumerate(list(held), 1):
            fits = place == before or (len(held) <= MOST_SCOPES and sum(held.values()) <= self._scopes_bytes)
            if not fits or now - self._asked[known] >= SCOPE_SECONDS:
                self._readers.pop(known).close()
                del held[known], self._asked[known]
        if len(held) < before:
            trim()

    def _tell(self, phase: str) -> None:
        if phase == "preparing":
            limit_cpu(float(sys.maxsize >> 32))
        else:
            limit_cpu(self._timeout)
        self._wire.send({"phase": phase})


def _told(error: Exception) -> dict[str, str]:
    """``error`` as it goes to the parent."""
    if isinstance(error, _OUT_OF_MEMORY) or isinstance(error.__cause__, _OUT_OF_MEMORY):
        return {"error": "memory", "what": first_line(error)}
    if isinstance(error, UserError):
        return {"error": "user", "what": error.what, "fix": error.fix}
    if isinstance(error, SojournError):
        return {"error": "fault", "what": str(error)}
    return {"error": "user", "what": f"the query failed: {first_line(error)}", "fix": "correct the SQL"}
