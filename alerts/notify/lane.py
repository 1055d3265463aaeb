"""One receiver's deliveries: attempts of its own, in number and in pace, whatever becomes of other receivers'."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import httpx
from standardwebhooks.webhooks import Webhook

from alerts.notify.guard import Refused, resolve
from alerts.notify.retry import backoff, judge, parse_retry_after
from alerts.notify.target import Target
from alerts.settings import ReceiverSettings
from alerts.store.outbox import Delivery, Outbox, Parcel
from lake.clock import Clock
from lake.errors import UserError

log = logging.getLogger(__name__)

#: Attempts that may be under way towards one receiver at a time.
CONCURRENCY = 4
#: The longest that a lane sleeps unless it is woken, and the shortest that it does while there is nothing to start.
LONGEST_SLEEP, SHORTEST_SLEEP = 5.0, 0.02
#: What is kept of an error.
LONGEST_ERROR = 500


class Receiver:
    """A receiver with its key: makes signed requests."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self.settings = settings
        self.target = Target.of(settings.url)
        secret = settings.secret()
        try:
            self._webhook = Webhook(secret) if secret else None
        except Exception as error:  # the library raises what its base64 decoder does
            raise UserError(
                f"receiver {settings.name}: its signing key is not valid",
                "give whsec_ followed by base64 of 24 to 64 bytes",
            ) from error

    def headers(self, parcel: Parcel, now: datetime) -> dict[str, str]:
        """Standard Webhooks' headers: the id of the parcel, the time of the attempt, the signature over all."""
        headers = {
            "content-type": "application/json",
            "user-agent": "Sojourn",
            "webhook-id": parcel.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "host": self.target.authority,
        }
        if self._webhook is not None:
            headers["webhook-signature"] = self._webhook.sign(parcel.id, now, parcel.body)
        return headers


@dataclass(frozen=True, slots=True)
class _Answer:
    """How an attempt ended: with a status, or with an error of ours or of the network."""

    status: int | None = None
    error: str | None = None
    retry_after: timedelta | None = None
    forbidden: bool = False


class Lane:
    """Delivers one receiver's parcels. Belongs to the sender's event loop; ``stop``, then wait for :meth:`run`."""

    def __init__(self, receiver: Receiver, outbox: Outbox, tls: ssl.SSLContext, clock: Clock) -> None:
        self._receiver = receiver
        self._name = receiver.settings.name
        self._outbox = outbox
        self._tls = tls
        self._clock = clock
        self._woken = asyncio.Event()
        self._ready: deque[Parcel] = deque()
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by group
        self._disabled = outbox.disabled().get(self._name) == receiver.settings.url
        self._failures = 0  # of the store, in a row
        self._not_before = 0.0  # monotonic seconds
        self._stopping = False
        self._finish = False
        # A look-up cannot be cancelled: one that hangs must not hold up those of other receivers.
        self._resolvers = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix=f"resolve-{self._name}")

    def wake(self) -> None:
        """There may be something to send."""
        self._woken.set()

    def stop(self, *, finish: bool) -> None:
        """End; with ``finish`` when everything that is due has been tried."""
        self._stopping, self._finish = True, finish
        self._woken.set()

    async def run(self, grace: float) -> None:
        """Deliver until stopped; attempts that are under way then may take ``grace`` seconds more."""
        limits = httpx.Limits(max_connections=CONCURRENCY)
        # Proxies of the environment would connect on our behalf, behind the guard's back.
        client = httpx.AsyncClient(follow_redirects=False, trust_env=False, verify=self._tls, limits=limits)
        async with client:
            while True:
                self._woken.clear()
                pause = self._start_due(client)
                if self._stopping and not (self._finish and self._under_way):
                    break
                await self._sleep(pause)
            if self._under_way:
                await asyncio.wait(self._under_way.values(), timeout=grace)
                for task in self._under_way.values():
                    task.cancel()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def _start_due(self, client: httpx.AsyncClient) -> float:
        """Begin attempts while there is room; returns for how long (seconds) there is nothing more to begin."""
        if (hold := self._not_before - time.monotonic()) > 0:
            return hold
        try:
            while len(self._under_way) < CONCURRENCY:
                if not self._ready:
                    self._ready.extend(self._outbox.due(self._clock.now(), self._name, besides=self._under_way))
                if not self._ready:
                    next_at = self._outbox.next_at(self._name, besides=self._under_way)
                    return LONGEST_SLEEP if next_at is None else (next_at - self._clock.now()).total_seconds()
                parcel = self._ready.popleft()
                task = asyncio.create_task(self._deliver(client, parcel))
                self._under_way[parcel.group_key] = task
                task.add_done_callback(partial(self._done, parcel))
        except Exception as error:  # of the store: no other lane may suffer
            self._hold(f"the outbox cannot be read: {error}")
        return LONGEST_SLEEP

    def _done(self, parcel: Parcel, task: asyncio.Task[None]) -> None:
        self._under_way.pop(parcel.group_key, None)
        self._woken.set()
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self._failures = 0
        else:
            self._hold(f"delivery {parcel.id} could not be recorded: {type(error).__name__}: {error}")

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

    async def _deliver(self, client: httpx.AsyncClient, parcel: Parcel) -> None:
        settings = self._receiver.settings
        now, shown, started = self._clock.now(), self._clock.wall(), time.perf_counter()
        if self._disabled:
            gone = Delivery(shown, "refused", None, "disabled: it answered 410 Gone", None)
            self._outbox.record(parcel, gone, None, now=now)
            return
        answer = await self._attempt(client, parcel, shown)
        verdict = judge(
            answer.status,
            attempts=parcel.attempts + 1,
            age=now - parcel.created_at,
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
        self._outbox.record(parcel, delivery, retry_at, now=ended)
        if verdict.outcome != "delivered":
            level = logging.WARNING if verdict.outcome == "retry" else logging.ERROR
            again = f"; told again in {verdict.retry_in.total_seconds():.0f} s" if verdict.retry_in else ""
            log.log(level, "webhook to %s: %s (%s)%s", self._name, answer.error, verdict.outcome, again)

    async def _attempt(self, client: httpx.AsyncClient, parcel: Parcel, now: datetime) -> _Answer:
        """One request. Nothing that goes wrong with it escapes: it would be tried again at once, and for ever."""
        try:
            response = await self._post(client, parcel, now)
            status = response.status_code
            retry_after = parse_retry_after(response.headers.get("retry-after"), now)
        except Refused as refusal:
            return _Answer(error=str(refusal), forbidden=True)
        except Exception as failure:
            return _Answer(error=f"{type(failure).__name__}: {failure}".removesuffix(": ")[:LONGEST_ERROR])
        return _Answer(status, None if response.is_success else f"answered {status}", retry_after)

    async def _post(self, client: httpx.AsyncClient, parcel: Parcel, now: datetime) -> httpx.Response:
        settings, target = self._receiver.settings, self._receiver.target
        seconds = settings.timeout.total_seconds()
        async with asyncio.timeout(seconds):
            address = await resolve(target, allow_private=settings.allow_private, executor=self._resolvers)
            request = client.build_request(
                "POST",
                target.at(address),
                content=parcel.body.encode(),
                headers=self._receiver.headers(parcel, now),
                timeout=seconds,
                extensions={"sni_hostname": target.host},
            )
            auth = httpx.BasicAuth(target.user, target.password) if target.user or target.password else None
            # The answer's body is never read: a receiver cannot fill our memory.
            response = await client.send(request, auth=auth, stream=True, follow_redirects=False)
            await response.aclose()
            return response
