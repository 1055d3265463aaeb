"""The receiver as a collector: each step commits what came since the last, then answers the senders."""

from __future__ import annotations

import asyncio
import logging
import time
from urllib.parse import quote

from collectors.bronze import Bronze
from collectors.context import Context
from collectors.receive.batch import Batch, BatchReader
from collectors.receive.bronze_writer import BronzeWriter
from collectors.receive.handler import RETRY_SECONDS, RequestHandler
from collectors.receive.horizon import Horizon
from collectors.receive.inbox import Answer, Inbox, Request
from collectors.receive.joins import Joins, watched
from collectors.receive.memory import Memory
from collectors.receive.refill import recall_polls, refill
from collectors.receive.servers import Servers
from collectors.receive.spans import SpanReader
from collectors.receive.status import Code
from collectors.receive.waiting import Journal, Waiting
from collectors.receive.web import policy_of
from collectors.thread import Threads
from lake.errors import SojournError, first_line
from lake.store import LakeError

log = logging.getLogger(__name__)

#: A step without requests ends after so many seconds, so that the process can end.
_PATIENCE = 0.25


class Receiver:
    """Takes OpenTelemetry spans and the client's events; answers after they are durable."""

    def __init__(self, context: Context) -> None:
        settings = context.settings.receive
        self.name = f"receiver:{settings.name}"
        self.interval = 0.0
        self._settings = settings
        self._flush_interval = context.settings.flush_interval
        self._writer = context.writer
        self._metrics = context.metrics
        self._horizon = Horizon(settings.horizon_events, settings.horizon_seconds)
        self._memory = Memory(settings.remembered)
        joins = Joins(settings.joins, settings.names, watched(context.settings.brokers), context.board.queues)
        spans = SpanReader(self._memory, joins, settings.max_spans, publishes=settings.publishes)
        self._waiting, self._clock = Waiting(settings.hold_seconds, settings.hold_spans), context.clock
        self._spans = spans
        self._journal: Journal | None = None
        self._reader = BatchReader(spans, self._horizon, settings.max_spans, context.clock, self._waiting)
        self._bronze_writer = BronzeWriter(self.name, self.name, self._horizon, context.settings.compact_every)
        self._inbox = Inbox(settings.max_pending, settings.max_pending_bytes)
        self._servers: Servers | None = None
        self._threads = Threads("receive")
        self._committed = 0.0

    async def open(self) -> None:
        """Know again what was committed last, then open the servers."""
        if self._servers is None:
            settings = self._settings
            token = None if settings.token is None else settings.token.read("the receiver's token")
            await self._recall()
            await self._recall_held()
            policy = policy_of(settings, token)
            servers = Servers(settings, policy, RequestHandler(self._inbox, settings.answer_seconds))
            await asyncio.to_thread(servers.open)
            self._servers = servers
            self._inbox.open()
            log.info("%s: listens on %s", self.name, settings.host)

    async def _recall(self) -> None:
        settings = self._settings
        last = await self._writer.do(self._bronze_writer.begun)
        if last is None:
            return
        seconds = settings.horizon_seconds

        def recall(bronze: Bronze) -> int:
            recall_polls(bronze, self._bronze_writer.totals, self.name, last, seconds)
            return refill(bronze, self._horizon, self._memory, last, seconds=seconds, most=settings.remembered)

        log.info("%s: knows %d events again", self.name, await self._writer.do(recall))

    async def _recall_held(self) -> None:
        """Hold again the spans that waited for their producers' when the process ended."""
        settings = self._settings
        path = await self._writer.do(
            lambda bronze: bronze.state_path("receive", f"{quote(settings.name, safe='')}.held")
        )
        journal = self._journal = Journal(path, max(1.0, settings.hold_seconds))
        held = [span for request in journal.read() for span in self._spans.sends(request).later]
        # Whichever file they stand in: all of them are kept until the last of these is told.
        self._waiting.commit((), held, 0, self._clock.now().timestamp())

    async def step(self) -> None:
        """Commit what came, at most once each ``flush_interval``, and answer."""
        assert self._servers is not None
        if not self._servers.alive:
            raise LakeError("the receiver's servers are closed")
        await asyncio.sleep(max(0.0, self._committed + self._flush_interval - time.monotonic()))
        await self._commit(_PATIENCE)

    async def _commit(self, patience: float) -> None:
        requests = await self._threads.do(lambda: self._inbox.take(patience))
        self._metrics.buffered.labels(self.name).set(self._inbox.pending)
        if not requests and not self._waiting.is_due(self._clock.now().timestamp()):
            return
        self._committed = time.monotonic()
        left = list(requests)
        try:
            if self._bronze_writer.unsure:
                await self._writer.do(self._bronze_writer.settle)
            for batch in await self._threads.do(lambda: self._reader.read(requests)):
                with self._metrics.commit_seconds.labels(self.name).time():
                    await self._writer.do(lambda bronze: self._write(bronze, batch))  # noqa: B023
                for request, answer in zip(batch.requests, batch.answers, strict=True):
                    request.answer(answer)
                    left.remove(request)
                self._inbox.answered(batch.requests)
                self._count(batch)
        except SojournError:
            raise
        except Exception as error:  # one request of a stranger must not end every other collector
            if not isinstance(error, OSError):
                log.exception("%s: a commit failed in a way that nobody foresaw", self.name)
            raise LakeError(f"the lake took nothing: {first_line(error)}") from error
        finally:
            self._put_off(left)
        await self._writer.do(self._bronze_writer.compact)

    def _write(self, bronze: Bronze, batch: Batch) -> None:
        """Make ``batch`` durable: what waits in the journal, all else in bronze; on the lake's thread."""
        journal, now = self._journal, self._clock.now().timestamp()
        assert journal is not None
        journal.append(batch.held, now)
        batch.commit(bronze, self._bronze_writer)
        self._waiting.commit(batch.released, batch.held, journal.number, now)
        journal.prune(self._waiting.oldest_journal)

    def _put_off(self, requests: list[Request]) -> None:
        """What was not committed comes again: the sender keeps it."""
        if requests:
            answer = Answer(Code.UNAVAILABLE, "the lake takes nothing now", retry_seconds=RETRY_SECONDS)
            for request in requests:
                request.answer(answer)
            self._inbox.answered(requests)

    def _count(self, batch: Batch) -> None:
        metrics, name = self._metrics, self.name
        metrics.records.labels(name).inc(batch.rows)
        metrics.duplicates.labels(name).inc(batch.duplicates + batch.folded)
        metrics.skewed.labels(name).inc(batch.skewed)
        metrics.ahead.labels(name).inc(batch.ahead)
        metrics.conflated.labels(name).inc(batch.conflated)
        metrics.rejected.labels(name).inc(sum(record.times for record in (*batch.rejected.values(), *batch.unwritten)))
        metrics.ignored.labels(name).inc(batch.ignored)
        metrics.buffered.labels(name).set(self._inbox.pending)

    async def close(self) -> None:
        """Commit what came, then close the servers; what comes now is sent again to the next receiver."""
        self._inbox.close()
        try:
            if self._servers is not None:
                await self._commit(0.0)
        except SojournError as error:
            log.warning("%s: %s", self.name, error)
        finally:
            if self._servers is not None:
                await asyncio.to_thread(self._servers.close)
                self._servers = None
            self._threads.close()
