"""``FairConsumer``: takes what a consumer has buffered in a fair order, so that the quiet overtake the flood."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sojourn.client.backoff import doubled
from sojourn.client.grouped import GroupedOrder
from sojourn.client.groups import Onsets

log = logging.getLogger(__name__)

Message = TypeVar("Message")

#: A pause after a fetch that failed or brought nothing (seconds): a broker that answers at once is not asked in a loop.
EMPTY_PAUSE, FIRST_BACKOFF, MAX_BACKOFF = 0.01, 0.1, 5.0


@dataclass(frozen=True, slots=True)
class FairStats:
    """What a :class:`FairConsumer` did so far; ``buffered`` and ``tenants`` are of now."""

    handled: int
    failed: int
    returned: int
    fetch_failures: int
    buffered: int
    tenants: int


def grouped_order(weights: Mapping[str, float] | None, groups: Sequence[str], *, sybils: bool) -> GroupedOrder[Message]:
    """The order that consumers keep; ValueError for a weight or a group that is none."""
    return GroupedOrder(weights, groups=groups, onsets=Onsets() if sybils else None, clock=time.monotonic)


class FairConsumer(Generic[Message]):
    """Handles a shared queue's messages by start-time fair queueing over tenants (:mod:`sojourn.client.fair`).

    ``fetch(n)`` brings at most ``n`` messages, and may wait a moment for the first; ``tenant_of`` names a message's
    tenant; ``handle`` does the work and acknowledges. ``release`` gives back what was fetched and not handled when the
    consumer stops (default: the broker gives it to others when its time-out has passed). ``failed`` is told of a
    message whose ``handle`` raised; the others go on. ``workers`` threads call ``handle``; ``weights`` as in
    :class:`FairOrder`. ``groups`` are beginnings of tenants' names (``acme-*``) that have one share together; with
    ``sybils``, so have tenants of whom many more begin at once than by chance (:mod:`sojourn.client.groups`).

    ``buffer`` is the bound of what is fetched ahead, and how much of the queue a quiet tenant can overtake: keep it
    below what the workers finish within the broker's visibility or ack time-out. A tenant's own messages stay in order
    of arrival with one worker.
    """

    def __init__(
        self,
        fetch: Callable[[int], Sequence[Message]],
        handle: Callable[[Message], object],
        tenant_of: Callable[[Message], str],
        *,
        workers: int = 1,
        buffer: int = 1000,
        weights: Mapping[str, float] | None = None,
        groups: Sequence[str] = (),
        sybils: bool = True,
        release: Callable[[Message], object] | None = None,
        failed: Callable[[Message, Exception], object] | None = None,
    ) -> None:
        if workers < 1 or buffer < 1:
            raise ValueError(f"workers {workers} and buffer {buffer} must be at least 1")
        self._fetch, self._handle, self._tenant_of = fetch, handle, tenant_of
        self._release, self._failed = release, failed
        self._workers, self._buffer = workers, buffer
        self._order: GroupedOrder[Message] = grouped_order(weights, groups, sybils=sybils)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._counts = dict.fromkeys(("handled", "failed", "returned", "fetch_failures"), 0)

    def run(self) -> None:
        """Fetch and handle until :meth:`stop`; returns when what is in work has ended and the rest was given back."""
        threads = [threading.Thread(target=self._work, name=f"fair-{n}", daemon=True) for n in range(self._workers)]
        for thread in threads:
            thread.start()
        try:
            self._fill()
        finally:
            self.stop()
            for thread in threads:
                thread.join()
            self._give_back()

    def stop(self) -> None:
        """End :meth:`run` soon; safe from any thread and from signal handlers' threads."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def stats(self) -> FairStats:
        """Counts so far."""
        with self._changed:
            return FairStats(**self._counts, buffered=len(self._order), tenants=self._order.tenants)

    def _fill(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._room() > 0 or self._stopping.is_set())
                room = self._room()
            if self._stopping.is_set():
                return
            try:
                messages = [(self._name(message), message) for message in self._fetch(room)]
            except Exception as error:
                with self._changed:
                    self._counts["fetch_failures"] += 1
                failures += 1
                backoff = doubled(failures, FIRST_BACKOFF, MAX_BACKOFF)
                log.warning("cannot fetch, again in %.1f s: %s: %s", backoff, type(error).__name__, error)
                self._stopping.wait(backoff)
                continue
            failures = 0
            with self._changed:
                for tenant, message in messages:
                    self._order.put(tenant, message)
                self._changed.notify_all()
            if not messages:
                self._stopping.wait(EMPTY_PAUSE)

    def _room(self) -> int:
        return self._buffer - len(self._order)

    def _name(self, message: Message) -> str:
        """The message's tenant; one that cannot be told waits among the unknown, and is not lost."""
        try:
            return str(self._tenant_of(message))
        except Exception as error:
            log.warning("a message names no tenant: %s: %s", type(error).__name__, error)
            return "unknown"

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._order) > 0 or self._stopping.is_set())
                if self._stopping.is_set():
                    return
                tenant, message = self._order.take()
                self._changed.notify_all()
            started = time.perf_counter()
            outcome = "handled" if self._handled(message) else "failed"
            seconds = time.perf_counter() - started
            with self._changed:
                self._order.done(tenant, seconds)
                self._counts[outcome] += 1

    def _handled(self, message: Message) -> bool:
        try:
            self._handle(message)
            return True
        except Exception as error:
            try:
                if self._failed is not None:
                    self._failed(message, error)
                else:
                    log.exception("a message could not be handled")
            except Exception:
                log.exception("the callback for a failed message failed itself")
            return False

    def _give_back(self) -> None:
        while len(self._order):
            _, message = self._order.take()
            self._counts["returned"] += 1
            if self._release is None:
                continue
            try:
                self._release(message)
            except Exception as error:
                log.warning("a message could not be given back: %s: %s", type(error).__name__, error)
