"""The simulated world: one queue that tenants share, its servers, and producers that obey limits.

A discrete-event simulation: arrivals are drawn beforehand, the heap holds what else will happen, and nothing happens in
between.
"""

from __future__ import annotations

import gc
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import starmap
from math import inf, log
from typing import NamedTuple

import numpy as np

from alerts.laws.token_bucket import Level, TokenBucket, refill, take, take_some
from lab.order import ArrivalOrder, Order, of
from lab.scenario import Scenario, Tenant


@contextmanager
def gc_paused() -> Iterator[None]:
    """While a simulation runs nothing that it makes is garbage: to look for it takes a fifth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Message:
    """One message of ``account``: when its producer had it, when the queue did, and when work on it first began.

    ``work`` is how long each attempt takes, where that is known; all but the last fail. ``began_at`` is there from the
    first attempt on, ``processing`` (seconds) is the newest's. No dataclass: there are millions of them, and this is
    the quickest to make.
    """

    began_at: float
    processing: float

    __slots__ = ("account", "attempts", "began_at", "done", "enqueued_at", "offered_at", "poison", "processing", "work")

    def __init__(self, account: Account, at: float, poison: bool = False, work: tuple[float, ...] = ()) -> None:
        self.account, self.poison, self.work = account, poison, work
        self.offered_at = self.enqueued_at = at
        self.attempts, self.done = 0, False


class FirstAttempt(NamedTuple):
    """What is measured of each message: its age in the queue, and with the time its producer held it."""

    tenant: str
    at: float
    age: float
    total_age: float


@dataclass(slots=True)
class Account:
    """What happened to one tenant, second by second, and what it has in the queue now.

    ``entered`` messages came into the queue, of which ``completed`` are gone and ``in_flight`` are worked on.
    """

    name: str = ""
    mean: float = 1.0  # seconds that its messages take
    entered: int = 0
    shed: int = 0
    completed: int = 0
    in_flight: int = 0
    last_arrival: float = -inf
    held: deque[Message] = field(default_factory=deque)
    limit: tuple[TokenBucket, Level, float] | None = None
    plan: int = 0
    #: All that may still be in the backlog, and surely all that is, in the order in which they came.
    came: deque[Message] = field(default_factory=deque)
    #: All that work was begun on, in the order in which it was.
    begun: list[Message] = field(default_factory=list)
    arrivals: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    completions: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    processing: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    failures: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def offered(self) -> int:
        """Messages that its producers had so far."""
        return self.entered + self.shed + len(self.held)

    @property
    def backlog(self) -> int:
        """Messages enqueued and not completed."""
        return self.entered - self.completed

    @property
    def ready(self) -> int:
        """Messages that wait for a server."""
        return self.entered - self.completed - self.in_flight

    @property
    def oldest(self) -> float:
        """When the oldest message of its backlog came; infinite where there is none."""
        came = self.came
        while came and came[0].done:
            came.popleft()
        return came[0].enqueued_at if came else inf


class Queue:
    """Runs one scenario once. Random numbers come from one stream a purpose, so that variants see the same load."""

    def __init__(self, scenario: Scenario, servers: int, seed: int, *, order: str = "arrival") -> None:
        self.now = 0.0
        self.accounts = {
            tenant.name: Account(tenant.name, tenant.service_mean or scenario.service_mean)
            for tenant in scenario.tenants
        }
        self._scenario = scenario
        self._idle = servers
        self._stopped = False
        self._waiting: Order[Message] = of(
            order, lambda: self.now, {tenant.name: tenant.weight for tenant in scenario.tenants}
        )
        #: First in, first out needs no more than this.
        self._fifo: deque[Message] | None = deque() if isinstance(self._waiting, ArrivalOrder) else None
        #: What comes at an instant, in the order in which it was said: a message that is done, an account of which more
        #: may go if that is still its plan, or something to do.
        self._heap: list[tuple[float, int, Message | Account | Callable[[], None]]] = []
        self._number = 0
        self._second = 0
        self._seed = seed
        self._service_random = random.Random(f"{seed}/service")
        self._draw, self._exponential = self._service_random.random, scenario.service == "exponential"
        self._failure_random = random.Random(f"{seed}/failures")
        self._fallible = bool(scenario.trace or scenario.failing.part or any(one.poison for one in scenario.tenants))
        self._slowness = 1.0
        if scenario.outage is not None:
            self.at(scenario.outage[0], self._stop)
            self.at(scenario.outage[1], self._resume)
        for when, slowness in scenario.slowdowns:
            self.at(when, lambda slowness=slowness: setattr(self, "_slowness", slowness))  # type: ignore[misc]
        for when, more in scenario.scaling:
            self.at(when, lambda more=more: self._scale(more))  # type: ignore[misc]

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let ``what`` happen at ``when``."""
        self._number += 1
        heappush(self._heap, (when, self._number, what))

    def run(self) -> None:
        """Let everything happen until the scenario's end."""
        with gc_paused():
            self._run()

    def forget(self) -> None:
        """Let go of all messages, once nobody asks for them any more: they and their accounts hold one another, and
        whoever runs many simulations would wait for the collector of garbage to find them, a tenth of the time."""
        for account in self.accounts.values():
            for messages in (account.held, account.came, account.begun):
                messages.clear()
        self._heap.clear()

    def _run(self) -> None:
        heap, end, coming = self._heap, self._scenario.duration, self._coming()
        last = Message(Account(), inf)
        message = next(coming, last)
        arrives = message.enqueued_at
        boundary = 1.0
        while True:
            if heap and heap[0][0] < arrives:
                when, number, what = heappop(heap)
            else:
                when, number, what = arrives, 0, None
            if when > end or when == inf:
                return
            self.now = when
            if when >= boundary:
                self._second = int(when)
                boundary = self._second + 1.0
            if what is None:
                account = message.account
                if account.limit is None and not account.held:
                    self._enqueue(message)
                else:
                    self._offer(account, message)
                message = next(coming, last)
                arrives = message.enqueued_at
            elif what.__class__ is Message:
                self._complete(what)
            elif what.__class__ is Account:
                if what.plan == number:
                    self._send_held(what)
            else:
                what()  # type: ignore[operator]

    def limit(self, tenant: str, rate: float, valid_until: float, *, burst: float = 0.0, first: float = inf) -> None:
        """Put a limit in force at the tenant's producer, or other terms of it; it ends by itself at ``valid_until``.

        Its bucket holds ``burst`` (default: a second's worth), where it is new ``first`` tokens at most.
        """
        account = self.accounts[tenant]
        bucket = TokenBucket(rate, max(1.0, burst or rate))
        level = Level(min(bucket.burst, first), self.now)
        if account.limit is not None:
            kept = refill(account.limit[0], account.limit[1], self.now)
            level = Level(min(bucket.burst, kept.tokens), self.now)
        account.limit = (bucket, level, valid_until)
        self._send_held(account)

    def release(self, tenant: str) -> None:
        """End a limit."""
        account = self.accounts[tenant]
        account.limit = None
        self._send_held(account)

    def told_noisy(self, tenants: set[str]) -> None:
        """Who is noisy now, for an order that cares."""
        self._waiting.told_noisy(tenants)

    @property
    def backlog(self) -> int:
        """Messages enqueued and not completed."""
        return sum(account.backlog for account in self.accounts.values())

    @property
    def first_attempts(self) -> list[FirstAttempt]:
        """All that there were so far, tenant by tenant."""
        return [
            FirstAttempt(name, one.began_at, one.began_at - one.enqueued_at, one.began_at - one.offered_at)
            for name, account in self.accounts.items()
            for one in account.begun
        ]

    def _coming(self) -> Iterator[Message]:
        """What producers will have, in order; ``enqueued_at`` is when."""
        if self._scenario.trace:
            return self._traced()
        accounts = list(self.accounts.values())
        drawn = [_arrivals(tenant, self._scenario.duration, self._seed) for tenant in self._scenario.tenants]
        times = np.concatenate([np.array(one) for one in drawn])
        order = np.argsort(times, kind="stable")
        whose = np.repeat(np.arange(len(drawn)), [len(one) for one in drawn])[order]
        each = zip(map(accounts.__getitem__, whose.tolist()), times[order].tolist(), strict=True)
        if not any(tenant.poison for tenant in self._scenario.tenants):
            return starmap(Message, each)
        return self._poisoned(each)

    def _traced(self) -> Iterator[Message]:
        for arrival in self._scenario.trace:
            message = Message(self.accounts[arrival.tenant], arrival.at, work=arrival.work)
            if arrival.offered is not None:
                message.offered_at = arrival.offered
            yield message

    def _poisoned(self, each: Iterable[tuple[Account, float]]) -> Iterator[Message]:
        poison = {tenant.name: tenant.poison for tenant in self._scenario.tenants}
        draw = random.Random(f"{self._seed}/poison").random
        for account, at in each:
            part = poison[account.name]
            yield Message(account, at, part > 0 and draw() < part)

    def _offer(self, account: Account, message: Message) -> None:
        """Let the producer of ``message``, who is limited or holds others, send, hold or shed it."""
        if self._scenario.producer != "shed":
            account.held.append(message)
            if len(account.held) == 1:
                self._send_held(account)
        elif account.limit is None or account.limit[2] <= self.now:
            account.limit = None
            self._enqueue(message)
        else:
            bucket, level, until = account.limit
            taken = take(bucket, level, self.now)
            account.limit = (bucket, taken.level, until)
            if taken.allowed:
                self._enqueue(message)
            else:
                account.shed += 1

    def _send_held(self, account: Account) -> None:
        """Send what may go, and look again when the next may; an earlier plan to look is void."""
        held, limit, now = account.held, account.limit, self.now
        self._number += 1
        account.plan = plan = self._number
        if limit is None or limit[2] <= now:
            account.limit = None
            while held:
                self._enqueue(held.popleft())
        elif held:
            bucket, level, until = limit
            count, wait, level = take_some(bucket, level, now, len(held))
            account.limit = (bucket, level, until)
            for _ in range(count):
                self._enqueue(held.popleft())
            if held:
                heappush(self._heap, (min(now + max(wait, 1e-6), until), plan, account))

    def _enqueue(self, message: Message) -> None:
        message.enqueued_at = now = self.now
        account = message.account
        account.entered += 1
        account.last_arrival = now
        account.came.append(message)
        account.arrivals[self._second] += 1
        if self._fifo is None:
            self._waiting.put(account.name, message)
            self._start()
        elif self._fifo or self._idle <= 0 or self._stopped:
            self._fifo.append(message)
        else:
            self._begin(message)

    def _start(self) -> None:
        if self._fifo is not None:
            while self._idle > 0 and self._fifo and not self._stopped:
                self._begin(self._fifo.popleft())
            return
        while self._idle > 0 and self._waiting and not self._stopped:
            self._begin(self._waiting.take()[1])

    def _begin(self, message: Message) -> None:
        self._idle -= 1
        account = message.account
        account.in_flight += 1
        message.attempts += 1
        if message.attempts == 1:
            message.began_at = self.now
            account.begun.append(message)
        if message.work:
            taken = message.work[message.attempts - 1]
        elif self._exponential:
            taken = -log(1.0 - self._draw()) / (1 / (account.mean * self._slowness))
        else:
            taken = self._draw_service(account.mean * self._slowness)
        message.processing = taken
        self._number += 1
        heappush(self._heap, (self.now + taken, self._number, message))

    def _complete(self, message: Message) -> None:
        account, second = message.account, self._second
        account.in_flight -= 1
        account.processing[second] += message.processing
        again = self._fallible and self._fails(message)
        if not again:  # completed, or given up: either way it is gone
            account.completed += 1
            message.done = True
            account.completions[second] += 1
        else:
            account.failures[second] += 1
        self._idle += 1
        if (fifo := self._fifo) is None:
            if again:
                self._waiting.put(account.name, message)
            self._waiting.done(account.name, message.processing)
            self._start()
            return
        if again:
            fifo.append(message)
        if fifo and self._idle == 1 and not self._stopped:
            self._begin(fifo.popleft())
        elif fifo:
            self._start()

    def _fails(self, message: Message) -> bool:
        """Whether it fails and is tried again."""
        failing = self._scenario.failing
        if message.attempts >= (len(message.work) or failing.attempts):
            return False
        if message.poison or message.work:
            return True
        return failing.start <= self.now < failing.end and self._failure_random.random() < failing.part

    def _draw_service(self, mean: float) -> float:
        if self._exponential:
            return -log(1.0 - self._draw()) / (1 / mean)
        if self._scenario.service == "constant":
            return mean
        return lognormal(self._service_random, mean)

    def _scale(self, more: int) -> None:
        self._idle += more
        self._start()

    def _stop(self) -> None:
        self._stopped = True

    def _resume(self) -> None:
        self._stopped = False
        self._start()


def _arrivals(tenant: Tenant, duration: float, seed: int) -> list[float]:
    """When ``tenant`` has a message, until ``duration``: a Poisson process of each phase's rate.

    It has no memory, so a draw that crosses into another phase starts anew there.
    """
    draw = random.Random(f"{seed}/{tenant.name}").random
    found: list[float] = []
    now = 0.0
    for index, phase in enumerate(tenant.phases):
        end = tenant.phases[index + 1].at if index + 1 < len(tenant.phases) else duration
        rate = phase.rate
        if end <= now or rate <= 0:
            continue
        now = max(now, phase.at)
        while (now := now - log(1.0 - draw()) / rate) < end:
            found.append(now)
        now = end
    return [at for at in found if at <= duration]


def lognormal(chance: random.Random, mean: float) -> float:
    """A draw of that mean, and a standard deviation as large."""
    sigma = 0.8325546111576977  # √ln 2
    return chance.lognormvariate(0.0, sigma) * mean / 2**0.5
