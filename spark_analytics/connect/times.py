"""How long a query over Spark Connect may run: one that goes on longer is interrupted, whether its client still asks.

A client of Spark Connect may leave a query and come back for its rows, so a call that ends ends no query. What began is
remembered here until its client gives it up, or its time is over.

Spark interrupts a query once, by its thread, and what that is doing may overlook it: reading a plan, making code. Jobs
that such a query begins later would run for as long as they like. So its jobs are cancelled again and again.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError

log = logging.getLogger(__name__)

#: Seconds after the interruption in which Spark may still end the query by itself, before its client is told.
GRACE_SECONDS = 5.0
#: When the jobs of an interrupted query are cancelled again (seconds after the time before): one that begins in between
#: runs for no longer than its beginning took.
_AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: Queries that no client has given up; of more, the oldest is interrupted.
_MOST_HELD = 256


class Query(NamedTuple):
    """One query, by what its client calls it."""

    user: str
    session: str
    operation: str


class QueryTimes:
    """Calls ``interrupt`` for each query that has run for ``seconds``, and ``cancel`` for what jobs it has then and
    later, from a thread of its own, until ``close``."""

    def __init__(
        self,
        seconds: float,
        interrupt: Callable[[base_pb2.InterruptRequest], None],
        cancel: Callable[[Query], None],
    ) -> None:
        self.seconds = seconds
        self._interrupt = interrupt
        self._cancel = cancel
        self._again: list[tuple[float, int, Query]] = []  # a heap: when, for the how manieth time, which
        self._ends: OrderedDict[Query, float] = OrderedDict()  # those that ran first are first
        self._over: OrderedDict[Query, None] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="query-times", daemon=True)
        self._thread.start()

    def begin(self, request: base_pb2.ExecutePlanRequest) -> Query:
        """``request`` is about to run; it is given an operation's id where it has none."""
        request.operation_id = request.operation_id or str(uuid.uuid4())
        query = named(request)
        with self._changed:
            self._ends.setdefault(query, time.monotonic() + self.seconds)
            self._changed.notify()
        return query

    def end(self, query: Query) -> None:
        """Nobody asks for it any more."""
        with self._changed:
            self._ends.pop(query, None)

    def left(self, query: Query) -> float:
        """Seconds after which a client that still waits for ``query`` is told that its time is over."""
        with self._changed:
            end = self._ends.get(query)
        return GRACE_SECONDS + (self.seconds if end is None else max(0.0, end - time.monotonic()))

    def is_over(self, query: Query) -> bool:
        """Whether ``query`` was interrupted."""
        with self._changed:
            return query in self._over

    def error(self) -> UserError:
        """What its client is told."""
        return UserError(
            f"the query ran for more than {self.seconds:g} s and was interrupted",
            "ask for less, or have `sojourn connect --max-seconds` raised",
        )

    def close(self) -> None:
        """Interrupt nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        while (due := self._next()) is not None:
            query, times = due
            for end in (partial(self._interrupt, _request(query)), partial(self._cancel, query)):
                try:
                    end()
                except Exception as error:  # it has ended, or Spark has; the next one has its time all the same
                    log.debug("a query was not interrupted: %s", error)
            if times < len(_AGAIN_SECONDS) and len(self._again) < _MOST_HELD:
                heapq.heappush(self._again, (time.monotonic() + _AGAIN_SECONDS[times], times + 1, query))

    def _next(self) -> tuple[Query, int] | None:
        """The next query whose time is over, once it is, and how often that was said of it before; None at the end."""
        with self._changed:
            while not self._closed:
                query, end = next(iter(self._ends.items()), (None, 0.0))
                left = end - time.monotonic()
                if query is not None and (left <= 0 or len(self._ends) > _MOST_HELD):
                    del self._ends[query]
                    self._over[query] = None
                    if len(self._over) > _MOST_HELD:
                        self._over.popitem(last=False)
                    return query, 0
                until_again = self._again[0][0] - time.monotonic() if self._again else None
                if until_again is not None and until_again <= 0:
                    _, times, query = heapq.heappop(self._again)
                    return query, times
                waits = [one for one in (None if query is None else left, until_again) if one is not None]
                self._changed.wait(min(waits, default=None))
        return None


def _request(query: Query) -> base_pb2.InterruptRequest:
    request = base_pb2.InterruptRequest(
        session_id=query.session,
        interrupt_type=base_pb2.InterruptRequest.INTERRUPT_TYPE_OPERATION_ID,
        operation_id=query.operation,
    )
    request.user_context.user_id = query.user
    return request


def named(
    request: base_pb2.ExecutePlanRequest | base_pb2.ReattachExecuteRequest | base_pb2.ReleaseExecuteRequest,
) -> Query:
    """The query that ``request`` is about."""
    return Query(request.user_context.user_id, request.session_id, request.operation_id)
