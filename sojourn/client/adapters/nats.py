"""NATS JetStream in a fair order, what is still in the broker included: a subject and a filtered consumer each tenant.

Where a stream's messages lie under one subject, a consumer gets them in order of arrival, and a quiet tenant overtakes
only what was fetched ahead. Under ``orders.<tenant>`` each tenant has a queue of its own in the broker; of each only a
few messages are fetched ahead, and :class:`sojourn.client.grouped.GroupedOrder` says whose is next.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sojourn.client.fair_consumer import FairStats, grouped_order
from sojourn.client.grouped import GroupedOrder

log = logging.getLogger(__name__)

#: How long one request for a tenant's next message stays with the broker, and one for what else is there (seconds). A
#: broker that restarts has forgotten the first: so long a tenant may then wait.
PULL_SECONDS, MORE_SECONDS = 5.0, 0.005
#: How long, at the end, messages are waited for that may be on their way.
LAST_SECONDS = 1.0
FIRST_BACKOFF, MAX_BACKOFF = 0.1, 5.0
#: Looking for tenants takes at most this part of the time.
LOOKING_PART = 0.05
_SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FairSubjects:
    """Handles a stream's messages by start-time fair queueing over its subjects; belongs to one event loop.

    ``jetstream`` is nats-py's context, ``subject`` the tenants' subjects with ``*`` in the tenant's place
    (``orders.*``). ``handle`` does the work and acknowledges; a message whose ``handle`` raised is told to ``failed``,
    or else comes again after the consumer's ``ack_wait``. ``workers`` messages are in work at once; ``ahead`` of each
    tenant (default: four times the workers) are fetched ahead: keep it below what is finished within ``ack_wait``.
    ``weights`` as in :class:`sojourn.FairOrder`, ``groups`` and ``sybils`` as in :class:`sojourn.FairConsumer`,
    ``config`` for the consumers' own settings.

    Each tenant's consumer is durable and called ``<durable>-<tenant>``, so that several processes share its queue.
    Tenants appear by themselves: their subjects are asked for every ``discover_seconds``. A tenant's messages stay in
    order of arrival with one worker.
    """

    def __init__(
        self,
        jetstream: Any,
        stream: str,
        subject: str,
        handle: Callable[[Any], Awaitable[object]],
        *,
        workers: int = 8,
        ahead: int | None = None,
        weights: Mapping[str, float] | None = None,
        groups: Sequence[str] = (),
        sybils: bool = True,
        durable: str = "fair",
        config: Any = None,
        discover_seconds: float = 0.2,
        failed: Callable[[Any, Exception], Awaitable[object]] | None = None,
    ) -> None:
        if subject.split(".").count("*") != 1 or ">" in subject:
            raise ValueError(f"subject {subject!r} must have one * in the tenant's place")
        ahead = 4 * workers if ahead is None else ahead
        if workers < 1 or ahead < 1 or discover_seconds <= 0:
            raise ValueError(
                f"workers {workers}, ahead {ahead} and discover_seconds {discover_seconds} must be above 0"
            )
        self._jetstream, self._stream, self._subject = jetstream, stream, subject
        self._handle, self._failed = handle, failed
        self._workers, self._ahead, self._discover_seconds = workers, ahead, discover_seconds
        self._durable, self._config = durable, config
        self._place = subject.split(".").index("*")
        self._order: GroupedOrder[Any] = grouped_order(weights, groups, sybils=sybils)
        self._feeds: dict[str, asyncio.Task[None]] = {}
        self._room: dict[str, asyncio.Event] = {}
        self._counts = dict.fromkeys(("handled", "failed", "returned", "fetch_failures"), 0)
        self._stopping = asyncio.Event()
        self._arrived = asyncio.Semaphore(0)  # as often as a message waits

    async def run(self) -> None:
        """Handle until :meth:`stop`; returns when what is in work has ended and the rest was given back."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        try:
            await self._discover()
        finally:
            self.stop()
            await self._end_feeds()
            for _ in workers:
                self._arrived.release()
            await asyncio.gather(*workers)
            await self._give_back()

    async def _end_feeds(self) -> None:
        """End what fetches; what the broker is sending just now is taken, or it would keep it back for ``ack_wait``."""
        for room in self._room.values():
            room.set()
        feeds = list(self._feeds.values())
        if feeds:
            await asyncio.wait(feeds, timeout=LAST_SECONDS)
        for feed in feeds:
            feed.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)

    def stop(self) -> None:
        """End :meth:`run` soon. From the loop's own thread."""
        self._stopping.set()

    def stats(self) -> FairStats:
        """Counts so far."""
        return FairStats(**self._counts, buffered=len(self._order), tenants=len(self._feeds))

    async def _discover(self) -> None:
        while not self._stopping.is_set():
            began, pause = time.monotonic(), self._discover_seconds
            try:
                info = await self._jetstream.stream_info(self._stream, subjects_filter=self._subject)
                for subject in info.state.subjects or ():
                    if subject not in self._feeds:
                        self._feeds[subject] = asyncio.create_task(self._feed(subject))
            except Exception as error:
                self._counts["fetch_failures"] += 1
                log.warning("cannot look for tenants of %s: %s: %s", self._stream, type(error).__name__, error)
                pause = MAX_BACKOFF
            await self._pause(max(pause, (time.monotonic() - began) / LOOKING_PART))

    async def _feed(self, subject: str) -> None:
        """Keep a few messages of one tenant at hand."""
        tenant = subject.split(".")[self._place]
        room = self._room[tenant] = asyncio.Event()
        queue, backoff = None, FIRST_BACKOFF
        while not self._stopping.is_set():
            room.clear()
            wanted = self._ahead - self._order.waiting(tenant)
            if wanted <= 0:
                await room.wait()
                continue
            try:
                queue = queue or await self._jetstream.pull_subscribe(
                    subject, durable=self._name(tenant), stream=self._stream, config=self._config
                )
                self._put(tenant, await _fetched(queue, 1, PULL_SECONDS))
                if wanted > 1:
                    self._put(tenant, await _fetched(queue, wanted - 1, MORE_SECONDS))
                backoff = FIRST_BACKOFF
            except Exception as error:
                self._counts["fetch_failures"] += 1
                log.warning("cannot fetch from %s: %s: %s", subject, type(error).__name__, error)
                await self._pause(backoff)
                backoff = min(MAX_BACKOFF, 2 * backoff)

    def _put(self, tenant: str, messages: list[Any]) -> None:
        for message in messages:
            self._order.put(tenant, message)
            self._arrived.release()

    async def _work(self) -> None:
        while True:
            await self._arrived.acquire()
            if self._stopping.is_set():
                return
            tenant, message = self._order.take()
            self._room[tenant].set()
            began = time.perf_counter()
            self._counts["handled" if await self._handled(message) else "failed"] += 1
            self._order.done(tenant, time.perf_counter() - began)

    async def _handled(self, message: Any) -> bool:
        try:
            await self._handle(message)
            return True
        except Exception as error:
            try:
                if self._failed is not None:
                    await self._failed(message, error)
                else:
                    log.exception("a message could not be handled")
            except Exception:
                log.exception("the callback for a failed message failed itself")
            return False

    async def _give_back(self) -> None:
        while len(self._order):
            _, message = self._order.take()
            self._counts["returned"] += 1
            try:
                await message.nak()
            except Exception as error:
                log.warning("a message could not be given back: %s: %s", type(error).__name__, error)

    def _name(self, tenant: str) -> str:
        """The consumer's name, which takes fewer characters than a subject."""
        safe = tenant if _SAFE.fullmatch(tenant) else hashlib.sha256(tenant.encode()).hexdigest()[:32]
        return f"{self._durable}-{safe}"

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


async def _fetched(queue: Any, most: int, seconds: float) -> list[Any]:
    try:
        return list(await queue.fetch(most, timeout=seconds))
    except TimeoutError:  # nothing came
        return []
