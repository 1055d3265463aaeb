"""Reads the queues of one account and region: lists them now and then, and each cycle asks for all their attributes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from brokers.sqs import client, credentials, trouble
from brokers.sqs.client import Channel
from collectors.records import now_us
from collectors.samples import Sample, unread
from collectors.sqs import parse
from collectors.sqs.cloudwatch import PERIOD, Told, Totals
from collectors.sqs.listing import addresses
from collectors.sqs.pace import Pace
from collectors.sqs.settings import SqsBroker
from collectors.sqs.sweep import Missed, Read, Sweep
from collectors.sqs.watch import Watch
from collectors.thread import Threads

_LISTING_ATTEMPTS = 4
#: After so long a listing, of hundreds of thousands of queues if it is sound, is cut off.
_LISTING_SECONDS = 120.0


class SqsSource:
    """Reads one broker's queues. What blocks runs in threads of its own: as many as there are connections."""

    def __init__(self, broker: SqsBroker) -> None:
        self._broker = broker
        self._pace = Pace()
        self._threads: Threads | None = None
        self._channels: list[Channel] = []
        self._watch: Watch | None = None
        self._totals: Totals | None = None  # outlasts a lost connection: its totals go on
        self._service: client.Service | None = None
        self._credentials: Callable[[], Any] | None = None
        self._addresses: list[str] = []
        self._listed_at = 0.0
        self._last: set[str] = set()
        self._rest = ""
        self._dead_letters: dict[str, str] = {}

    async def open(self) -> None:
        """Find the credentials and list the queues."""
        await self.close()
        self._threads = Threads(f"sqs-{self._broker.name}", self._broker.connections)
        self._service = client.sqs(self._broker)
        self._credentials = await self._threads.do(lambda: credentials.find(self._broker))
        await self._list()
        if self._broker.cloudwatch.enabled:
            self._totals = self._totals or Totals(since=int(time.time()) // PERIOD * PERIOD)
            self._watch = Watch(self._broker, self._credentials, self._totals)
            self._watch.queues = self._names()
            self._watch.start()

    async def read(self) -> list[Sample]:
        """Every queue once. Those that the last cycle had no time for come first."""
        if not self._addresses or time.monotonic() - self._listed_at >= self._broker.list_interval:
            await self._list()
        outcomes = await self._sweep(sorted(self._addresses, key=lambda address: address not in self._last))
        self._last = {address for address in self._addresses if address not in outcomes}
        self._raise_if_all(outcomes)
        assert self._threads is not None
        return await self._threads.do(lambda: self._samples(outcomes))  # of 10,000 queues: a tenth of a second

    async def close(self) -> None:
        """Disconnect."""
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.stop()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()
        channels, self._channels = self._channels, []
        for channel in channels:
            channel.close()

    async def _sweep(self, addresses: list[str]) -> Mapping[str, Read | Missed]:
        assert self._threads is not None
        count = min(self._broker.connections, len(addresses))
        sweep = Sweep(addresses, self._pace, patience=max(10, 2 * count))
        one = partial(self._work, sweep, self._channels)
        work = [asyncio.ensure_future(self._threads.do(one)) for _ in range(count)]
        try:
            if work:
                _, late = await asyncio.wait(work, timeout=self._broker.cycle_timeout)
                if late:
                    sweep.stop()
                    # Cut-off requests end at once, connecting ones by their own timeout.
                    await asyncio.wait(work, timeout=self._broker.request_timeout + 1)
        finally:
            sweep.stop()
        for ended in work:
            if ended.done():
                ended.result()
        self._rest = "the server stopped answering"
        if not sweep.gave_up:
            self._rest = f"not reached within {self._broker.cycle_timeout:g} s"
        return dict(sweep.outcomes)

    def _work(self, sweep: Sweep, kept: list[Channel]) -> None:
        channel = kept.pop() if kept else self._channel()
        try:
            sweep.work(channel)
        finally:
            if channel.sound:
                kept.append(channel)
            else:
                channel.close()

    def _channel(self) -> Channel:
        assert self._service is not None and self._credentials is not None
        return Channel(self._service, self._credentials)

    async def _list(self) -> None:
        assert self._threads is not None
        channel = self._channel()
        work = asyncio.ensure_future(self._threads.do(lambda: self._listing(channel)))
        done, _ = await asyncio.wait((work,), timeout=_LISTING_SECONDS)
        if not done:
            channel.abort()  # an answer that trickles meets no timeout of its own
        found = await work
        if found is not None:
            self._addresses, self._listed_at = found, time.monotonic()
            names = set(self._names())
            self._dead_letters = {queue: to for queue, to in self._dead_letters.items() if queue in names}
            if self._watch is not None:
                self._watch.queues = self._names()
        elif not self._addresses:
            raise trouble.lost(self._broker, "it is too busy to list its queues")

    def _listing(self, channel: Channel) -> list[str] | None:
        try:
            # Where queues are known already, the next cycle is soon enough to try again.
            return addresses(self._broker, channel, attempts=1 if self._addresses else _LISTING_ATTEMPTS)
        finally:
            channel.close()

    def _names(self) -> list[str]:
        return [parse.queue_name(address) for address in self._addresses]

    def _raise_if_all(self, outcomes: Mapping[str, Read | Missed]) -> None:
        if self._addresses and not outcomes:
            raise trouble.lost(self._broker, f"no queue was read within {self._broker.cycle_timeout:g} s")
        missed = [one for one in outcomes.values() if isinstance(one, Missed)]
        for one in missed:
            if one.kind in ("credentials", "clock"):
                raise trouble.refused(self._broker, one.kind, one.reason, "")
        if not missed or len(missed) < len(outcomes):
            return
        if all(one.kind == "denied" for one in missed):
            raise trouble.refused(self._broker, "denied", missed[0].reason, "sqs:GetQueueAttributes")
        if any(one.away for one in missed):
            raise trouble.lost(self._broker, next(one.reason for one in missed if one.away))

    def _samples(self, outcomes: Mapping[str, Read | Missed]) -> list[Sample]:
        now, broker = now_us(), self._broker
        for address, outcome in outcomes.items():
            if isinstance(outcome, Read):
                queue = parse.queue_name(address)
                target = parse.dead_letter_queue(outcome.attributes)
                if target is None:
                    self._dead_letters.pop(queue, None)
                else:
                    self._dead_letters[queue] = target
        serves = parse.served(self._dead_letters)
        found: list[Sample] = []
        for address in self._addresses:
            queue = parse.queue_name(address)
            outcome = outcomes.get(address) or Missed(None, self._rest)
            if isinstance(outcome, Read):
                told = self._watch.told(queue) if self._watch is not None else Told()
                found.append(
                    parse.sample(broker, queue, outcome.at, outcome.attributes, serves=serves.get(queue, ()), told=told)
                )
            elif outcome.kind != "gone":
                letters = parse.listed(serves.get(queue, ()))
                found.append(unread(queue, now, outcome.reason, dead_letter_for=letters))
        return found
