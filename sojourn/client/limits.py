"""``Limits``: the rate limits in force now, obeyed where messages are sent."""

from __future__ import annotations

import functools
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Collection, Sequence

from sojourn.client.backoff import doubled
from sojourn.client.bucket import PASS, Bucket, Decision
from sojourn.client.clock import running
from sojourn.client.in_force import Congested, InForce
from sojourn.client.mirrors.base import Mirror, Source, mirror_of
from sojourn.client.poller import Answer, Poller
from sojourn.client.sleepers import Sleepers
from sojourn.client.wire import MalformedAnswer, Update, WireLimit

log = logging.getLogger(__name__)

#: Pauses between polls, in seconds: the least after an answer, the first and the longest after a failure.
MIN_PAUSE, FIRST_BACKOFF, MAX_BACKOFF = 0.05, 0.25, 10.0
#: Who waits looks at the clock so often (seconds): the machine may have slept, and the lease have ended meanwhile.
LOOK_AGAIN = 1.0
#: Makes what ``Decision(…)`` makes, whose own constructor takes twice as long.
_made = tuple.__new__
_COUNTERS = ("polls", "unreachable", "malformed", "updates", "granted", "refused", "expired", "waited_seconds")


class Limits:
    """The limits that one Sojourn serves, kept fresh by a daemon thread and obeyed by :meth:`acquire`.

    >>> limits = Limits("http://127.0.0.1:9095")        # doctest: +SKIP
    >>> limits.acquire("orders", "acme")                # doctest: +SKIP

    ``url`` may also be a mirror's: ``file:///run/limits.json``, ``redis://…``, ``nats://…``, ``kafka://…``, or one of
    the classes in :mod:`sojourn.client.mirrors` with its options, such as credentials.

    It fails open: where the API cannot be reached, answers nonsense, or a limit's lease has ended, messages pass, and
    :meth:`counters` says how often. ``token`` is the API's bearer token. ``broker`` keeps to the limits of one broker
    (default: all), ``queues`` to those of some queues. ``share`` is this process's part of each tenant's rate, where
    several processes send for the same tenant. ``poll_seconds`` is the length of a long poll, not a delay: a change
    arrives at once.

    The limit of a group (``acme-*``) is shared by all whose names begin so and who have none of their own.

    Beside limits there are entitlements: what each tenant of a queue may send whatever the others do. They bind only
    while the API says that the queue is congested; where a limit is in force too, it counts instead.
    """

    def __init__(
        self,
        url: str | Mirror,
        *,
        token: str | None = None,
        broker: str | None = None,
        queues: Collection[str] | None = None,
        share: float = 1.0,
        poll_seconds: float = 20.0,
        clock: Callable[[], float] = running,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share {share} must be in (0, 1]")
        wanted = frozenset(queues or ())
        mirror = mirror_of(url) if isinstance(url, str) else url
        self._new_poller: Callable[[], Source]
        if isinstance(url, str) and mirror is None:
            self._new_poller = functools.partial(Poller, url, token, poll_seconds, clock, broker, wanted)
        elif mirror is not None:
            if token is not None:
                raise ValueError("a token is the limits API's: a mirror takes its own options")
            self._new_poller = functools.partial(mirror.source, clock)
        self._poller = self._new_poller()
        self._said = InForce(broker, wanted, share)
        self._clock = clock
        #: Replaced whole by the poller, never changed: reading them needs no lock.
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._congested: dict[str, tuple[Congested, ...]] = {}
        self._closed = False
        self._start()
        weak = weakref.WeakMethod(self._after_fork)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: method() if (method := weak()) else None)

    def acquire(self, queue: str, tenant: str, *, block: bool = True, timeout: float | None = None) -> Decision:
        """Ask to send one message to ``queue`` for ``tenant``; true if it may go now.

        With ``block`` it waits for its turn, at most ``timeout`` seconds (None: as long as the limit holds). A
        decision that is false means: not sent, come back after ``retry_after_seconds``, sideline it or drop it.
        """
        decision = self._at_once(queue, tenant, block)
        if decision.allowed or not block:
            return decision
        started = self._clock()
        while True:
            news = self._news
            decision = self._try(queue, tenant, started)
            if decision:
                return decision
            pause = min(decision.retry_after_seconds, LOOK_AGAIN)
            if timeout is not None:
                left = timeout - decision.waited_seconds
                if left <= 0:
                    return self._refused(decision)
                pause = min(pause, left)
            self._pause(pause, news)

    def try_acquire(self, queue: str, tenant: str) -> Decision:
        """As :meth:`acquire`, without waiting."""
        return self._at_once(queue, tenant, False)

    async def wait(self, queue: str, tenant: str, *, timeout: float | None = None) -> Decision:
        """As :meth:`acquire`, for asyncio: waits without holding up the event loop."""
        decision = self._at_once(queue, tenant, True)
        if decision.allowed:
            return decision
        started = self._clock()
        while True:
            news = self._news
            decision = self._try(queue, tenant, started)
            if decision:
                return decision
            pause = min(decision.retry_after_seconds, LOOK_AGAIN)
            if timeout is not None:
                left = timeout - decision.waited_seconds
                if left <= 0:
                    return self._refused(decision)
                pause = min(pause, left)
            await self._pause_asyncio(pause, news)

    def in_force(self) -> dict[tuple[str, str], float]:
        """The rate (messages/s) of each (queue, tenant) that is limited now; a group's under its pattern."""
        now = self._clock()
        groups = {
            (queue, name): rate * one.share
            for queue, those in list(self._congested.items())
            for one in those
            for name, (rate, _) in one.terms.items()
            if one.of_group and one.expires_at > now
        }
        return groups | {key: bucket.rate for key, bucket in list(self._buckets.items()) if bucket.expires_at > now}

    def congested(self) -> dict[str, str]:
        """The queues that are congested now, and why: there each tenant is held to what it is entitled to."""
        now = self._clock()
        return {
            queue: one.reason
            for queue, those in list(self._congested.items())
            for one in those
            if one.expires_at > now and not one.of_group
        }

    def counters(self) -> dict[str, float]:
        """Since the start: polls and their failures, limited messages granted and refused, seconds waited."""
        with self._lock:
            counters = dict(self._counters)
        for tally in self._said.tallies:
            with tally.lock:
                counters["granted"] += tally.granted
                counters["refused"] += tally.refused
        return counters

    def close(self) -> None:
        """Stop polling and let every message pass, those waiting included."""
        with self._changed:
            self._closed = True
            self._buckets, self._congested = {}, {}
            self._tell_waiters()
        self._poller.close()

    def __enter__(self) -> Limits:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, limits: Sequence[WireLimit]) -> None:
        """Put ``limits`` in force in place of those before; where two name one (queue, tenant), the stricter counts."""
        self.apply(Update(None, whole=True, limits=limits))

    def apply(self, update: Update, said_at: float | None = None) -> None:
        """Put in force what ``update`` says; its leases count from ``said_at`` (default: now)."""
        now = self._clock()
        self._said.learn(update, now if said_at is None else min(now, said_at))
        buckets, congested = self._said.in_force(self._buckets, self._congested, now)
        with self._changed:
            if not self._closed:
                self._buckets, self._congested = buckets, congested
            self._counters["updates"] += 1
            self._tell_waiters()

    def _tell_waiters(self) -> None:
        self._news += 1
        self._changed.notify_all()
        self._sleepers.wake()

    def _at_once(self, queue: str, tenant: str, waits: bool) -> Decision:
        """A token, or none; who ``waits`` for one is not refused yet."""
        bucket = self._buckets.get((queue, tenant))
        if bucket is None and queue not in self._congested:
            return PASS
        now = self._clock()
        if bucket is None or now >= bucket.expires_at:
            of_limit, bucket = bucket, self._entitlement(queue, tenant, now)
            if bucket is None:
                if of_limit is None:
                    return PASS
                self._count("expired")
                return Decision(True, False, reason="the limit's lease has ended")
        needed = bucket.take(now, waits)
        if needed <= 0:
            return bucket.granted
        left = bucket.expires_at - now  # not beyond the lease: when it ends, the message may pass
        return _made(Decision, (False, True, 0.0, needed if needed < left else left, bucket.reason))

    def _try(self, queue: str, tenant: str, started: float) -> Decision:
        """As :meth:`_at_once`, for who has waited since ``started``."""
        decision = self._at_once(queue, tenant, True)
        waited = max(0.0, self._clock() - started)
        if decision.allowed:
            self._count("waited_seconds", waited)
        if decision is PASS:
            self._count("granted")
            return Decision(True, False, waited, reason="the limit was lifted")
        return decision._replace(waited_seconds=waited) if waited > 0 else decision

    def _entitlement(self, queue: str, tenant: str, now: float) -> Bucket | None:
        """What holds the tenant back by its group's limit, or while its queue is congested."""
        for congested in self._congested.get(queue, ()):
            if congested.expires_at > now:
                bucket = congested.bucket_of(tenant, now)
                if bucket is not None or not congested.of_group:
                    return bucket
        return None

    def _refused(self, decision: Decision) -> Decision:
        self._count("refused")
        self._count("waited_seconds", decision.waited_seconds)
        return decision

    def _count(self, name: str, by: float = 1) -> None:
        with self._lock:
            self._counters[name] += by

    def _pause(self, seconds: float, news: int) -> None:
        """Sleep, but wake up when the limits change; not at all where they have since ``news``."""
        with self._changed:
            if self._news == news:
                self._changed.wait(seconds)

    async def _pause_asyncio(self, seconds: float, news: int) -> None:
        """As :meth:`_pause`, for asyncio."""
        await self._sleepers.sleep(seconds, lambda: self._news != news)

    def _start(self) -> None:
        self._lock = threading.Lock()  # taken by itself it costs a third of what the condition's own methods do
        self._changed = threading.Condition(self._lock)
        self._counters: dict[str, float] = dict.fromkeys(_COUNTERS, 0)
        #: How often limits changed: who waits by those before must not miss it.
        self._news = 0
        self._sleepers = Sleepers()
        # The thread holds no reference while it sleeps, so that a forgotten Limits is collected.
        threading.Thread(target=_poll_forever, args=(weakref.ref(self),), name="sojourn-limits", daemon=True).start()

    def _after_fork(self) -> None:
        """Threads, locks and connections do not survive a fork: the child begins anew, with what was in force."""
        if not self._closed:
            self._inherited = self._poller  # never ended here: what it is connected by is the parent's
            self._poller = self._new_poller()
            for tally in self._said.tallies:
                tally.begin()
            self._start()


def _poll_forever(reference: weakref.ref[Limits]) -> None:
    """Poll until the ``Limits`` is closed or forgotten; no reference to it is held while waiting."""
    failures = 0
    while (limits := reference()) is not None and not limits._closed:
        poller, changed = limits._poller, limits._changed
        limits._count("polls")
        del limits
        answer: Answer | None = None
        fault: Exception | None = None
        try:
            answer = poller.poll()
        except Exception as error:  # whatever it is, the application must not notice more than a counter
            fault = error
        if (limits := reference()) is None or limits._closed:
            return
        if answer is not None:
            failures, pause = 0, max(MIN_PAUSE, answer.retry_after)
            if answer.update is not None:
                limits.apply(answer.update, answer.said_at)
        else:
            limits._count("malformed" if isinstance(fault, MalformedAnswer) else "unreachable")
            level = logging.WARNING if failures == 0 else logging.DEBUG
            log.log(level, "where limits come from is of no use, messages pass when leases end: %s", fault)
            failures += 1
            pause = doubled(failures, FIRST_BACKOFF, MAX_BACKOFF) * random.uniform(0.5, 1.0)
        del limits
        with changed:
            changed.wait(pause)
