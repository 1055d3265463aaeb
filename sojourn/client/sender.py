"""The thread that sends: it takes, encodes in small slices, posts, and repeats the same batch until it is accepted."""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, replace

from sojourn.client.backoff import doubled
from sojourn.client.batch import Batch, Format
from sojourn.client.buffer import Buffer
from sojourn.client.events import Event, text
from sojourn.client.polls import Polls
from sojourn.client.post import Answer, Post, Unreachable, Verdict
from sojourn.client.publishes import Publishes

log = logging.getLogger(__name__)

#: How often the thread looks whether there is something to do, in seconds.
TICK = 0.05
#: The most that one request carries.
MOST_EVENTS, MOST_SUMMARIES = 5_000, 500
#: Events encoded before other threads get their turn: about a quarter of a millisecond, more where much is waiting.
LEAST_SLICE, MOST_SLICE = 64, 512
YIELD = 50e-6
#: How long before its time is over a closing sender tries once more, in seconds.
LAST_TRY = 0.2
#: How long the thread of a recorder that was forgotten goes on trying.
PARTING_SECONDS = 10.0
#: Pauses after a failure, in seconds: the first, the longest, and where a person has to fix something.
FIRST_BACKOFF, MAX_BACKOFF, SLOW_BACKOFF = 0.1, 10.0, 30.0


@dataclass(slots=True)
class Books:
    """What became of the events, and of the requests: see :class:`sojourn.client.recorder.Stats`."""

    sent: int = 0
    summarised: int = 0
    refused: int = 0
    pending: int = 0
    failures: int = 0
    batches: int = 0


class Sender:
    """Sends what a buffer holds. ``wire`` writes the batches, ``post`` carries them."""

    def __init__(
        self, buffer: Buffer, polls: Polls, publishes: Publishes, wire: Format, post: Post, flush_interval: float
    ) -> None:
        self._buffer, self._polls, self._publishes = buffer, polls, publishes
        self._wire, self._post = wire, post
        self._interval = flush_interval
        self.closing = False
        self.renew()

    def renew(self) -> None:
        """Start anew: at the beginning, and in a forked child, where neither thread nor identity may be inherited."""
        self.sender = str(uuid.uuid4())
        self._sequence = 0
        self._outbox: deque[Batch] = deque()
        self._giving_up = 0.0  # when closing: the instant at which to stop, on the monotonic clock
        self._failing = 0  # requests in a row
        self._taken = 0  # events between the buffer and the outbox
        self._books, self._writing = Books(), threading.Lock()
        self._wake = threading.Event()
        self._post.close()
        self._thread = threading.Thread(target=self._run, name="sojourn-recorder", daemon=True)
        if not self.closing:
            self._thread.start()

    @property
    def pending(self) -> int:
        """How many events are not accepted yet, wherever they are."""
        return self.books().pending

    @property
    def idle(self) -> bool:
        """Whether all that was recorded, polls and publishes included, is accepted."""
        return not self.pending and not self._outbox and not len(self._polls) and not len(self._publishes)

    def books(self) -> Books:
        """The counts as they are, none of them in between."""
        with self._writing:
            outbox = sum(batch.stands_for for batch in self._outbox)
            return replace(self._books, pending=len(self._buffer) + self._taken + outbox)

    def flush(self) -> None:
        """Send what there is without waiting for the interval; returns at once."""
        self._wake.set()

    def end(self) -> None:
        """Send what is left and end, without anybody waiting for it: nobody refers to the recorder any more."""
        if not self.closing:
            self._giving_up = time.monotonic() + PARTING_SECONDS
            self.closing = True
            self._wake.set()

    def close(self, timeout: float) -> bool:
        """Send what is left, for at most ``timeout`` seconds; whether all of it was accepted."""
        self._giving_up = time.monotonic() + timeout
        self.closing = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._post.abort()
        return not self.pending

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while not self.closing:
            flush = self._wake.wait(min(TICK, self._interval))
            self._wake.clear()
            now = time.monotonic()
            if flush or now >= due or len(self._buffer) >= MOST_EVENTS:
                due = now + self._interval
                self._send_all()
            self._relieve()
        self._send_all()
        self._post.close()

    def _send_all(self) -> None:
        while not self._out_of_time():
            batch = self._next()
            if batch is None:
                return
            if batch and not self._deliver(batch):
                return

    def _next(self) -> Batch | None:
        """The next batch; an empty one where all that was taken needs no request; None where nothing is left."""
        if self._outbox:
            return self._outbox[0]
        buffer, wire = self._buffer, self._wire
        batch = Batch(self._sequence + 1)
        with self._writing:
            raws = buffer.take(MOST_EVENTS)
            self._taken = len(raws)
        nameless: list[Event] = []
        size = min(MOST_SLICE, max(LEAST_SLICE, (len(raws) + len(buffer)) // 32))
        for start in range(0, len(raws), size):
            for raw in raws[start : start + size]:
                event = buffer.judge(raw)
                if not event.message_id:
                    nameless.append(event)  # it can be counted, but not told apart
                elif (piece := wire.event(event)) is not None:
                    batch.events.append(piece)
                else:
                    batch.held += 1
            self._yield()
        with self._writing:
            buffer.count(nameless)
            rows, batch.conflated = buffer.take_summaries(MOST_SUMMARIES)
            self._taken = batch.stands_for
        for start in range(0, len(rows), LEAST_SLICE):
            batch.summaries += [wire.summary(row) for row in rows[start : start + LEAST_SLICE]]
            self._yield()
        with self._writing:
            self._taken = 0
            batch.polls = [
                wire.poll(text(broker) or "unknown", text(queue) or "unknown", text(subscriber), *counts)
                for (broker, queue, subscriber), counts in self._polls.take().items()
            ]
            now = time.time_ns() // 1000
            batch.publishes = [
                wire.publishes(text(broker) or "unknown", text(queue) or "unknown", now, count)
                for (broker, queue), count in self._publishes.take().items()
            ]
            if not batch:
                self._books.sent += batch.held
                return batch if raws else None
            self._sequence = batch.sequence
            self._outbox.append(batch)
        return batch

    def _deliver(self, batch: Batch) -> bool:
        """Send the first batch of the outbox until it is accepted, split or refused; false where time ran out."""
        body = self._wire.body(batch, self.sender)
        while True:
            try:
                answer = self._post.send(body)
            except Unreachable as error:
                self._say("the collector cannot be reached: %s", error)
                answer = Answer(Verdict.LATER, 0)
            except Exception as error:  # an answer that breaks the HTTP library must not end the thread
                self._say("the collector's answer is of no use: %s", error)
                answer = Answer(Verdict.LATER, 0)
            if answer.verdict is Verdict.ACCEPTED:
                self._accepted(batch, answer)
                return True
            if answer.verdict is Verdict.REFUSED:
                log.error("the collector refused %d events as malformed: %s", batch.stands_for, answer.body)
                self._gone(batch)
                return True
            if answer.verdict is Verdict.SPLIT:
                self._split(batch)
                return True
            pause = doubled(self._failing + 1, FIRST_BACKOFF, MAX_BACKOFF)
            if answer.verdict is Verdict.MISCONFIGURED:
                self._say("the collector answers %d: see to its address and token", answer.status)
                pause = SLOW_BACKOFF
            self._books.failures += 1
            self._failing += 1
            if not self._pause(max(answer.retry_after, pause * random.uniform(0.5, 1.0))):
                return False

    def _accepted(self, batch: Batch, answer: Answer) -> None:
        refused, reason = self._wire.refused(answer.body)
        refused = min(refused, len(batch.events))
        if refused or reason:
            log.error("the collector refused %d of %d events: %s", refused, len(batch.events), reason)
        with self._writing:
            self._failing = 0
            self._outbox.popleft()
            self._books.batches += 1
            self._books.refused += refused
            self._books.sent += len(batch.events) + batch.held - refused
            self._books.summarised += batch.conflated

    def _gone(self, batch: Batch) -> None:
        with self._writing:
            self._outbox.popleft()
            self._books.refused += batch.stands_for

    def _split(self, batch: Batch) -> None:
        halves = batch.split()
        if halves is None:
            log.error("the collector finds a single event too large")
            return self._gone(batch)
        first, second = halves
        # Later batches are not numbered yet, unless they are second halves themselves: those move up by one.
        with self._writing:
            self._outbox.popleft()
            for later in self._outbox:
                later.sequence += 1
            second.sequence = first.sequence + 1
            self._sequence += 1
            self._outbox.extendleft((second, first))

    def _pause(self, seconds: float) -> bool:
        """Wait, making room in the buffer meanwhile; false where the sender closes and has had its last try."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            if self.closing:
                last = self._giving_up - LAST_TRY
                if now >= last:
                    return False
                until = min(until, last)
            self._wake.wait(min(TICK, until - now))
            self._wake.clear()
            self._relieve()
        return True

    def _relieve(self) -> None:
        while self._buffer.relieve() and not self.closing:
            self._yield()

    def _yield(self) -> None:
        """Let a waiting thread have the interpreter: it needs longer to wake up than ``sleep(0)`` lasts."""
        if not self.closing:
            time.sleep(YIELD)

    def _out_of_time(self) -> bool:
        return self.closing and time.monotonic() >= self._giving_up

    def _say(self, message: str, *details: object) -> None:
        """Once until something is accepted again; then at the level of details."""
        log.log(logging.WARNING if not self._failing else logging.DEBUG, message, *details)
