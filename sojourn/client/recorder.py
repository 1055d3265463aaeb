"""``Recorder``: tells Sojourn what happens to messages, without ever standing in the application's way."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from sojourn.client.attempt import Attempt
from sojourn.client.batch import Format
from sojourn.client.buffer import Buffer
from sojourn.client.events import Instant
from sojourn.client.otlp import OtlpFormat
from sojourn.client.polls import Poll, Polls
from sojourn.client.post import Post
from sojourn.client.publishes import KEPT_SECONDS, Publishes, Publishing
from sojourn.client.record import Record, recorder_of
from sojourn.client.sender import Sender
from sojourn.client.wire_events import EventsFormat

log = logging.getLogger(__name__)

#: Events that stay single while the collector is away: about 10 MB.
CAPACITY = 32_768
#: The longest that the interpreter's exit waits for the last events, in seconds.
EXIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Stats:
    """What became of all that was recorded, in events: ``recorded`` is the sum of the five after it.

    ``sent`` were accepted one by one, ``summarised`` inside summaries; ``pending`` wait; ``refused`` the collector
    would not have; ``dropped`` came after the recorder was closed, or were left when its time ran out.
    ``conflated`` is how many were counted into summaries so far, sent or not, because there was no more room (or no
    message id); ``conflated_marks`` of them were failures, retries and the like, that a summary cannot tell in full.
    ``coarsened`` is how far the waiting summaries had to give up seconds, tenants, queues (0 = not at all).
    ``unsound`` had a value of no use, which went as null. ``failures`` are requests that will be, or were, repeated.
    """

    recorded: int
    sent: int
    summarised: int
    pending: int
    refused: int
    dropped: int
    conflated: int
    conflated_marks: int
    coarsened: int
    unsound: int
    failures: int
    batches: int


class Recorder:
    """Lifecycle events of messages, sent to a collector by a daemon thread.

    >>> recorder = Recorder("http://127.0.0.1:4318", broker="rabbitmq")      # doctest: +SKIP
    >>> recorder.received("orders", "m-17", tenant="acme", attempt=1)        # doctest: +SKIP

    A call appends one tuple and returns. The thread sends each ``flush_interval`` seconds and repeats a batch until it
    is accepted, under the same number, so that nothing is doubled. At most ``capacity`` events wait; what comes beyond
    is counted into one-second summaries. ``token`` is the collector's bearer token, ``broker`` the name under which
    events go that do not name another, ``worker`` this process's name. ``export="otlp"`` sends spans to any
    OpenTelemetry collector instead.
    """

    #: A message reached its queue.
    enqueued: Record
    #: An attempt began: a consumer has the message.
    received: Record
    #: The message is done.
    completed: Record
    #: An attempt failed, and the message will come again.
    failed: Record
    #: The message was given up, and moved to a dead-letter queue.
    dead_lettered: Record
    #: The message was dropped for its age.
    expired: Record
    #: The message was moved aside, to be replayed later.
    sidelined: Record
    #: The message is not to be received before some time has passed.
    delayed: Record

    def __init__(
        self,
        url: str = "http://127.0.0.1:4318",
        *,
        token: str | None = None,
        broker: str = "application",
        worker: str | None = None,
        capacity: int = CAPACITY,
        flush_interval: float = 1.0,
        export: Literal["events", "otlp"] = "events",
    ) -> None:
        if capacity < 256:
            raise ValueError(f"capacity {capacity} must be at least 256")
        if not flush_interval > 0:
            raise ValueError(f"flush_interval {flush_interval} must be above 0")
        if export not in ("events", "otlp"):
            raise ValueError(f"export {export!r} must be 'events' or 'otlp'")
        self.broker = broker
        wire: Format = EventsFormat(worker) if export == "events" else OtlpFormat(worker)
        self._buffer, self._polls = Buffer(capacity, broker), Polls()
        self._publishes = Publishes(max(KEPT_SECONDS, 2 * flush_interval))
        for kind in ("enqueued", "received", "completed", "failed", "dead_lettered", "expired", "sidelined", "delayed"):
            record = recorder_of(kind, self._buffer)
            record.recorder = self  # type: ignore[attr-defined]  # who keeps the call keeps the recorder
            setattr(self, kind, record)
        post = Post(url, wire.path, token)
        self._sender = Sender(self._buffer, self._polls, self._publishes, wire, post, flush_interval)
        self._closed = False
        _LIVING.add(self)
        weakref.finalize(self, self._sender.end).atexit = False

    def attempt(
        self,
        queue: str,
        message_id: str,
        *,
        subscriber: str | None = None,
        tenant: str | None = None,
        attempt: int | None = None,
        enqueued_at: Instant | None = None,
        priority: int | None = None,
        trace_id: str | None = None,
        broker: str | None = None,
        visibility_timeout: float | None = None,
        heartbeat: Callable[[], object] | None = None,
        since: float | None = None,
    ) -> Attempt:
        """One attempt to process a message, as a context manager: see :class:`sojourn.client.attempt.Attempt`."""
        details: dict[str, Any] = {
            "subscriber": subscriber,
            "tenant": tenant,
            "attempt": attempt,
            "enqueued_at": enqueued_at,
            "priority": priority,
            "trace_id": trace_id,
            "broker": broker,
        }
        return Attempt(self, queue, message_id, details, visibility_timeout, heartbeat, since)

    def polled(
        self, queue: str, *, messages: int, waited: float, subscriber: str | None = None, broker: str | None = None
    ) -> None:
        """Count one poll that waited ``waited`` seconds and brought ``messages``: see :mod:`sojourn.client.polls`."""
        self._polls.add((broker or self.broker, queue, subscriber), messages, waited)

    def poll(self, queue: str, *, subscriber: str | None = None, broker: str | None = None) -> Poll:
        """Time one poll: ``with recorder.poll("orders") as poll: … poll.messages = len(batch)``."""
        return Poll(self._polls, (broker or self.broker, queue, subscriber))

    def published(self, queue: str, *, seconds: float, failed: bool = False, broker: str | None = None) -> None:
        """Count one publish that the broker confirmed after ``seconds``, or that ``failed``, for the law
        ``publishing``: see :mod:`sojourn.client.publishes`. It tells of no message: ``enqueued`` does."""
        self._publishes.add((broker or self.broker, queue), seconds, failed=failed)

    def publishing(self, queue: str, *, broker: str | None = None) -> Publishing:
        """Time one publish: ``with recorder.publishing("orders"): …``. One that raises failed."""
        return Publishing(self._publishes, (broker or self.broker, queue))

    def flush(self, timeout: float = 5.0) -> bool:
        """Send at once, and wait at most ``timeout`` seconds; whether all is accepted, what others record meanwhile
        included."""
        deadline = time.monotonic() + timeout
        while not (done := self._sender.idle) and time.monotonic() < deadline and not self._closed:
            self._sender.flush()
            time.sleep(0.005)
        return done

    def stats(self) -> Stats:
        """What became of all that was recorded in this process so far; exact when no call is under way."""
        books, buffer = self._sender.books(), self._buffer
        pending, dropped = (0, books.pending) if self._closed else (books.pending, 0)
        return Stats(
            recorded=books.sent + books.summarised + books.pending + books.refused,
            sent=books.sent,
            summarised=books.summarised,
            pending=pending,
            refused=books.refused,
            dropped=dropped,
            conflated=buffer.conflated,
            conflated_marks=buffer.conflated_marks,
            coarsened=buffer.level,
            unsound=buffer.unsound,
            failures=books.failures,
            batches=books.batches,
        )

    def close(self, timeout: float = 5.0) -> bool:
        """Send what is left, for at most ``timeout`` seconds; whether all of it was accepted."""
        if not self._closed:
            complete = self._sender.close(timeout)
            self._closed = True
            if not complete:
                log.warning("%d events were not sent before the recorder was closed", self._sender.pending)
        return not self._sender.pending

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _after_fork(self) -> None:
        """Threads, locks and connections do not survive a fork; what waited is the parent's to send."""
        self._buffer.renew()
        self._polls.renew()
        self._publishes.renew()
        self._sender.renew()


_LIVING: weakref.WeakSet[Recorder] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    for recorder in list(_LIVING):
        recorder.close(max(0.1, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    for recorder in list(_LIVING):
        recorder._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
