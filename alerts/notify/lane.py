"""One receiver's deliveries: attempts of its own, in number and in pace, whatever becomes of other receivers'."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from alerts.notify.breaker import Breaker
from alerts.notify.connections import Connections
from alerts.notify.guard import Refused, resolve
from alerts.notify.notifiers import notifier_of
from alerts.notify.notifiers.base import Mail, Notification, Unsayable
from alerts.notify.recorder import Recorder
from alerts.notify.retry import TOO_MANY, backoff, judge, parse_retry_after
from alerts.notify.settings import ReceiverSettings
from alerts.notify.smtp import MailRefused, Postman
from alerts.store.health import DeliveryOutcome
from alerts.store.outbox import Delivery, Outbox, OutboxMessage
from lake.clock import Clock

log = logging.getLogger(__name__)

#: Attempts that may be under way towards one receiver at a time.
CONCURRENCY = 4
#: Messages that are read at a time: to find which are due takes as long for one as for all.
AT_A_TIME = 500
#: Attempts that have ended and are being written down, and those under way, together.
UNRECORDED = 100
#: The longest that a lane sleeps unless it is woken, and the shortest that it does while there is nothing to start.
LONGEST_SLEEP, SHORTEST_SLEEP = 5.0, 0.02
#: What is kept of an error.
LONGEST_ERROR = 500


#: Writes a notification's body anew for an attempt, from what is the case then.
Refresh = Callable[[str], Awaitable[str]]


class Receiver:
    """A receiver with what writes for it. UserError where its key or its template cannot be used."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self.settings = settings
        self.notifier = notifier_of(settings)


@dataclass(frozen=True, slots=True)
class _Answer:
    """How an attempt ended: with a status, or with an error of ours or of the network."""

    status: int | None = None
    error: str | None = None
    retry_after: timedelta | None = None
    forbidden: bool = False


class Lane:
    """Delivers one receiver's messages. Belongs to the sender's event loop; ``stop``, then wait for :meth:`run`."""

    def __init__(
        self,
        receiver: Receiver,
        outbox: Outbox,
        recorder: Recorder,
        tls: ssl.SSLContext,
        clock: Clock,
        refresh: Refresh | None = None,
    ) -> None:
        self._refresh = refresh
        self._receiver = receiver
        self._name = receiver.settings.name
        self._outbox = outbox
        self._tls = tls
        self._connections = Connections(tls)
        self._recorder = recorder
        self._attempting = 0
        self._clock = clock
        self._woken = asyncio.Event()
        self._ready: deque[OutboxMessage] = deque()
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by group
        self._disabled = outbox.disabled().get(self._name) == receiver.settings.url
        self._failures = 0  # of the store, in a row
        self._not_before = 0.0  # monotonic seconds
        self._stopping = False
        self._finish = False
        # A look-up cannot be cancelled: one that hangs must not hold up those of other receivers.
        self._resolvers = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix=f"resolve-{self._name}")
        self._postmen = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix=f"mail-{self._name}")
        self._breaker = Breaker()

    def wake(self) -> None:
        """There may be something to send."""
        self._woken.set()

    def stop(self, *, finish: bool) -> None:
        """End; with ``finish`` when everything that is due has been tried."""
        self._stopping, self._finish = True, finish
        self._woken.set()

    async def run(self, grace: float) -> None:
        """Deliver until stopped; attempts that are under way then may take ``grace`` seconds more."""
        while True:
            self._woken.clear()
            pause = self._start_due()
            if self._stopping and not (self._finish and self._under_way):
                break
            await self._sleep(pause)
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=grace)
            for task in self._under_way.values():
                task.cancel()
        self._connections.close()
        for pool in (self._resolvers, self._postmen):
            pool.shutdown(wait=False, cancel_futures=True)

    def _start_due(self) -> float:
        """Begin attempts while there is room; returns for how long (seconds) there is nothing more to begin."""
        if (hold := max(self._not_before, self._breaker.not_before) - time.monotonic()) > 0 and not self._finish:
            return hold
        try:
            most = 1 if self._breaker.is_open else CONCURRENCY
            while self._attempting < most and len(self._under_way) < UNRECORDED:
                if not self._ready:
                    self._ready.extend(
                        self._outbox.due(self._clock.now(), self._name, besides=self._under_way, most=AT_A_TIME)
                    )
                if not self._ready:
                    next_at = self._outbox.next_at(self._name, besides=self._under_way)
                    return LONGEST_SLEEP if next_at is None else (next_at - self._clock.now()).total_seconds()
                message = self._ready.popleft()
                task = asyncio.create_task(self._deliver(message))
                self._under_way[message.group_key] = task
                self._attempting += 1
                task.add_done_callback(partial(self._done, message))
        except Exception as error:  # of the store: no other lane may suffer
            self._hold(f"the outbox cannot be read: {error}")
        return LONGEST_SLEEP

    def _done(self, message: OutboxMessage, task: asyncio.Task[None]) -> None:
        self._under_way.pop(message.group_key, None)
        self._woken.set()
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self._failures = 0
        else:
            self._hold(f"delivery {message.id} could not be recorded: {type(error).__name__}: {error}")

    def _hold(self, why: str) -> None:
        """Begin nothing for a while: what could not be written down would be done again at once."""
        self._failures += 1
        pause = backoff(self._failures, random.random())
        self._not_before = time.monotonic() + pause.total_seconds()
        self._ready.clear()
        log.error("receiver %s: %s", self._name, why)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), min(LONGEST_SLEEP, max(SHORTEST_SLEEP, seconds)))
        except TimeoutError:
            return

    async def _deliver(self, message: OutboxMessage) -> None:
        settings = self._receiver.settings
        now, shown, started = self._clock.now(), self._clock.wall(), time.perf_counter()
        if self._disabled:
            gone = Delivery(shown, "refused", None, "disabled: it answered 410 Gone", None)
            self._attempting -= 1
            await self._recorder.record(message, gone, None, now=now)
            return
        try:
            answer = await self._attempt(message, shown)
        finally:
            self._attempting -= 1
            self._woken.set()  # the next may begin while this is written down
        verdict = judge(
            answer.status,
            attempts=message.attempts + 1,
            age=now - message.created_at,
            retry_for=settings.retry_for,
            retry_after=answer.retry_after,
            jitter=random.random(),
            forbidden=answer.forbidden,
        )
        if verdict.disable:
            self._outbox.disable(self._name, settings.url, shown)
            self._disabled = True
            log.error("receiver %s answered 410 Gone: it is disabled until its url changes", self._name)
        ended = self._clock.now()
        retry_at = ended + verdict.retry_in if verdict.retry_in is not None else None
        duration = time.perf_counter() - started
        delivery = Delivery(shown, verdict.outcome, answer.status, answer.error, duration)
        await self._recorder.record(message, delivery, retry_at, now=ended)
        self._note(verdict.outcome, answer.retry_after if answer.status == TOO_MANY else None, ended)
        if verdict.outcome == "delivered" and answer.error is not None:
            log.error("notification to %s: delivered, but %s", self._name, answer.error)
        if verdict.outcome != "delivered":
            level = logging.WARNING if verdict.outcome == "retry" else logging.ERROR
            again = f"; told again in {verdict.retry_in.total_seconds():.0f} s" if verdict.retry_in else ""
            log.log(level, "notification to %s: %s (%s)%s", self._name, answer.error, verdict.outcome, again)

    def _note(self, outcome: DeliveryOutcome, retry_after: timedelta | None, now: datetime) -> None:
        """Spare the receiver while it gives no answer; once it does, try what waits at once."""
        if outcome == "retry":
            if self._breaker.failed(time.monotonic(), random.random(), retry_after):
                log.warning("receiver %s does not answer: it is tried by single attempts", self._name)
        elif self._breaker.answered() and outcome == "delivered":
            log.warning("receiver %s answers again", self._name)
            self._outbox.hasten(self._name, now)

    async def _attempt(self, message: OutboxMessage, now: datetime) -> _Answer:
        """One attempt. Nothing that goes wrong with it escapes: it would be tried again at once, and for ever."""
        try:
            notification = Notification(message.id, message.group_key, await self._body(message), now)
            request = self._receiver.notifier.write(notification)
            async with asyncio.timeout(self._receiver.settings.timeout.total_seconds()):
                address = await resolve(
                    request.target, allow_private=self._receiver.settings.allow_private, executor=self._resolvers
                )
                if isinstance(request, Mail):
                    return await self._mail(request, address)
                response = await self._connections.post(request, address)
            retry_after = parse_retry_after(response.headers.get("retry-after"), now)
        except (Refused, Unsayable) as refusal:
            return _Answer(error=str(refusal)[:LONGEST_ERROR], forbidden=True)
        except MailRefused as refusal:
            return _Answer(error=str(refusal)[:LONGEST_ERROR], forbidden=refusal.status >= 500)
        except Exception as failure:
            return _Answer(error=f"{type(failure).__name__}: {failure}".removesuffix(": ")[:LONGEST_ERROR])
        status = response.status
        return _Answer(status, None if 200 <= status < 300 else f"answered {status}", retry_after)

    async def _body(self, message: OutboxMessage) -> str:
        """What is told now; what the outbox holds where that cannot be written anew."""
        if self._refresh is None:
            return message.body
        try:
            return await self._refresh(message.body)
        except Exception as error:
            log.error("notification to %s is told as it was written: %s: %s", self._name, type(error).__name__, error)
            return message.body

    async def _mail(self, mail: Mail, address: str) -> _Answer:
        postman = Postman(mail, address, self._tls, self._receiver.settings.timeout.total_seconds())
        try:
            not_taken = await asyncio.get_running_loop().run_in_executor(self._postmen, postman.deliver)
        except asyncio.CancelledError:
            postman.cancel()
            raise
        return _Answer(250, not_taken)
