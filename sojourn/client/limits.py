"""``Limits``: the rate limits in force now, obeyed where messages are sent."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from sojourn.client.bucket import PASS, Bucket, Decision
from sojourn.client.poller import Answer, Poller
from sojourn.client.wire import MalformedAnswer, WireLimit

log = logging.getLogger(__name__)

#: Pauses between polls, in seconds: the least after an answer, the first and the longest after a failure.
MIN_PAUSE, FIRST_BACKOFF, MAX_BACKOFF = 0.05, 0.25, 10.0
#: How often an asynchronous waiter looks whether its limit changed meanwhile.
ASYNC_SLICE = 0.1

_COUNTERS = ("polls", "unreachable", "malformed", "updates", "granted", "refused", "expired", "waited_seconds")


class Limits:
    """The limits that one Sojourn serves, kept fresh by a daemon thread and obeyed by :meth:`acquire`.

    >>> limits = Limits("http://127.0.0.1:9095")        # doctest: +SKIP
    >>> limits.acquire("orders", "acme")                # doctest: +SKIP

    It fails open: where the API cannot be reached, answers nonsense, or a limit's lease has ended, messages pass, and
    :meth:`counters` says how often. ``token`` is the API's bearer token. ``broker`` keeps to the limits of one broker
    (default: all). ``share`` is this process's part of each tenant's rate, where several processes send for the same
    tenant. ``poll_seconds`` is the length of a long poll, not a delay: a change arrives at once.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        broker: str | None = None,
        share: float = 1.0,
        poll_seconds: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share {share} must be in (0, 1]")
        self._new_poller = functools.partial(Poller, url, token, poll_seconds)
        self._poller = self._new_poller()
        self._broker, self._share, self._clock = broker, share, clock
        #: Replaced whole by the poller, never changed: reading it needs no lock.
        self._buckets: dict[tuple[str, str], Bucket] = {}
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
        bucket = self._buckets.get((queue, tenant))
        if bucket is None:
            return PASS
        started = self._clock()
        while True:
            decision = self._try(queue, tenant, started)
            if decision:
                return decision
            if not block:
                return self._refused(decision)
            pause = decision.retry_after_seconds
            if timeout is not None:
                left = timeout - decision.waited_seconds
                if left <= 0:
                    return self._refused(decision)
                pause = min(pause, left)
            self._pause(pause)

    def try_acquire(self, queue: str, tenant: str) -> Decision:
        """As :meth:`acquire`, without waiting."""
        return self.acquire(queue, tenant, block=False)

    async def wait(self, queue: str, tenant: str, *, timeout: float | None = None) -> Decision:
        """As :meth:`acquire`, for asyncio: waits without holding up the event loop."""
        if (queue, tenant) not in self._buckets:
            return PASS
        started = self._clock()
        while True:
            decision = self._try(queue, tenant, started)
            if decision:
                return decision
            pause = min(decision.retry_after_seconds, ASYNC_SLICE)
            if timeout is not None:
                left = timeout - decision.waited_seconds
                if left <= 0:
                    return self._refused(decision)
                pause = min(pause, left)
            await asyncio.sleep(pause)

    def in_force(self) -> dict[tuple[str, str], float]:
        """The rate (messages/s) of each (queue, tenant) that is limited now."""
        now = self._clock()
        return {key: bucket.rate for key, bucket in list(self._buckets.items()) if bucket.expires_at > now}

    def counters(self) -> dict[str, float]:
        """Since the start: polls and their failures, limited messages granted and refused, seconds waited."""
        with self._changed:
            return dict(self._counters)

    def close(self) -> None:
        """Stop polling and let every message pass, those waiting included."""
        with self._changed:
            self._closed = True
            self._buckets = {}
            self._changed.notify_all()
        self._poller.close()

    def __enter__(self) -> Limits:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, limits: Sequence[WireLimit]) -> None:
        """Put ``limits`` in force in place of those before; where two name one (queue, tenant), the stricter counts."""
        now = self._clock()
        strictest: dict[tuple[str, str], WireLimit] = {}
        for limit in limits:
            key = (limit.queue, limit.tenant)
            if limit.lease_seconds <= 0 or self._broker not in (None, limit.broker):
                continue
            if key not in strictest or limit.rate < strictest[key].rate:
                strictest[key] = limit
        buckets: dict[tuple[str, str], Bucket] = {}
        for key, limit in strictest.items():
            rate, burst = limit.rate * self._share, max(1.0, limit.burst * self._share)
            expires_at = now + limit.lease_seconds
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = Bucket(rate, burst, expires_at, now, limit.reason)
            else:
                bucket.renew(rate, burst, expires_at, now, limit.reason)
            buckets[key] = bucket
        with self._changed:
            if not self._closed:
                self._buckets = buckets
            self._counters["updates"] += 1
            self._changed.notify_all()

    def _try(self, queue: str, tenant: str, started: float) -> Decision:
        bucket = self._buckets.get((queue, tenant))
        now = self._clock()
        waited = now - started
        if bucket is None:
            self._count("granted", waited)
            return Decision(True, False, waited, reason="the limit was lifted")
        if now >= bucket.expires_at:
            self._count("expired", waited)
            return Decision(True, False, waited, reason="the limit's lease has ended")
        needed = bucket.take(now)
        if needed <= 0:
            self._count("granted", waited)
            return Decision(True, True, waited, reason=bucket.reason)
        # Not beyond the lease: when it ends, the message may pass.
        return Decision(False, True, waited, min(needed, bucket.expires_at - now), bucket.reason)

    def _refused(self, decision: Decision) -> Decision:
        self._count("refused", decision.waited_seconds)
        return decision

    def _count(self, name: str, waited: float = 0.0) -> None:
        with self._changed:
            self._counters[name] += 1
            self._counters["waited_seconds"] += waited

    def _pause(self, seconds: float) -> None:
        """Sleep, but wake up when the limits change."""
        with self._changed:
            if not self._closed:
                self._changed.wait(seconds)

    def _start(self) -> None:
        self._changed = threading.Condition()
        self._counters: dict[str, float] = dict.fromkeys(_COUNTERS, 0)
        # The thread holds no reference while it sleeps, so that a forgotten Limits is collected.
        threading.Thread(target=_poll_forever, args=(weakref.ref(self),), name="sojourn-limits", daemon=True).start()

    def _after_fork(self) -> None:
        """Threads, locks and connections do not survive a fork: the child begins anew, with what was in force."""
        if not self._closed:
            self._poller = self._new_poller()
            for bucket in self._buckets.values():
                bucket.unlock()
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
            if answer.limits is not None:
                limits.update(answer.limits)
        else:
            limits._count("malformed" if isinstance(fault, MalformedAnswer) else "unreachable")
            level = logging.WARNING if failures == 0 else logging.DEBUG
            log.log(level, "the limits API is of no use, messages pass when leases end: %s", fault)
            pause = min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
            failures += 1
        del limits
        with changed:
            changed.wait(pause)
