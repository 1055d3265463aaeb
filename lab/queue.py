"""The simulated world: one queue that tenants share, its servers, and producers that obey limits.

A discrete-event simulation: the heap holds what will happen, nothing happens in between.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from alerts.laws import token_bucket
from alerts.laws.token_bucket import Level, TokenBucket
from lab.order import Order, of
from lab.scenario import Arrival, Scenario, Tenant


@dataclass(slots=True)
class Message:
    """One message: when its producer had it, and when the queue did."""

    tenant: str
    offered_at: float
    enqueued_at: float = 0.0
    processing: float = 0.0
    attempts: int = 0
    poison: bool = False
    #: How long each attempt takes, where that is known; all but the last fail.
    work: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """What is measured of each message: its age in the queue, and with the time its producer held it."""

    tenant: str
    at: float
    age: float
    total_age: float


@dataclass(slots=True)
class Account:
    """What happened to one tenant, second by second, and what it has in the queue now."""

    offered: int = 0
    shed: int = 0
    completed: int = 0
    ready: int = 0
    in_flight: int = 0
    last_arrival: float = float("-inf")
    held: deque[Message] = field(default_factory=deque)
    #: enqueued_at of all in the backlog, by message; the first is the oldest.
    backlog: dict[int, float] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)
    completions: dict[int, int] = field(default_factory=dict)
    processing: dict[int, float] = field(default_factory=dict)


class Queue:
    """Runs one scenario once. Random numbers come from one stream a purpose, so that variants see the same load."""

    def __init__(self, scenario: Scenario, servers: int, seed: int, *, order: str = "arrival") -> None:
        self.now = 0.0
        self.accounts = {tenant.name: Account() for tenant in scenario.tenants}
        self.first_attempts: list[FirstAttempt] = []
        self._scenario = scenario
        self._idle = servers
        self._stopped = False
        self._waiting: Order[Message] = of(
            order, lambda: self.now, {tenant.name: tenant.weight for tenant in scenario.tenants}
        )
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._arrival_random = {tenant.name: random.Random(f"{seed}/{tenant.name}") for tenant in scenario.tenants}
        self._service_random = random.Random(f"{seed}/service")
        self._failure_random = random.Random(f"{seed}/failures")
        self._poison_random = random.Random(f"{seed}/poison")
        self._tenants = {tenant.name: tenant for tenant in scenario.tenants}
        self._slowness = 1.0
        self._limits: dict[str, tuple[TokenBucket, Level, float]] = {}
        self._plans: dict[str, int] = {}
        self._trace = iter(scenario.trace)
        if scenario.trace:
            self._next_of_trace()
        else:
            for tenant in scenario.tenants:
                self._next_arrival(tenant)
        if scenario.outage is not None:
            self.at(scenario.outage[0], self._stop)
            self.at(scenario.outage[1], self._resume)
        for when, slowness in scenario.slowdowns:
            self.at(when, lambda slowness=slowness: setattr(self, "_slowness", slowness))  # type: ignore[misc]
        for when, more in scenario.scaling:
            self.at(when, lambda more=more: self._scale(more))  # type: ignore[misc]

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let ``what`` happen at ``when``."""
        heapq.heappush(self._heap, (when, next(self._order), what))

    def run(self) -> None:
        """Let everything happen until the scenario's end."""
        while self._heap and self._heap[0][0] <= self._scenario.duration:
            self.now, _, what = heapq.heappop(self._heap)
            what()

    def limit(self, tenant: str, rate: float, valid_until: float, *, first: float = math.inf) -> None:
        """Put a limit in force at the tenant's producer, or other terms of it; it ends by itself at ``valid_until``. A
        bucket that is new holds ``first`` tokens, at most its burst."""
        bucket = TokenBucket(rate, max(1.0, rate))
        before = self._limits.get(tenant)
        level = Level(min(bucket.burst, first), self.now)
        if before is not None:
            kept = token_bucket.refill(before[0], before[1], self.now)
            level = Level(min(bucket.burst, kept.tokens), self.now)
        self._limits[tenant] = (bucket, level, valid_until)
        self._send_held(tenant)

    def release(self, tenant: str) -> None:
        """End a limit."""
        self._limits.pop(tenant, None)
        self._send_held(tenant)

    def told_noisy(self, tenants: set[str]) -> None:
        """Who is noisy now, for an order that cares."""
        self._waiting.told_noisy(tenants)

    @property
    def backlog(self) -> int:
        """Messages enqueued and not completed."""
        return sum(len(account.backlog) for account in self.accounts.values())

    def _next_arrival(self, tenant: Tenant) -> None:
        """Draw the next arrival; a draw that crosses into another phase starts anew there (arrivals have no memory)."""
        clock = self.now
        for index, phase in enumerate(tenant.phases):
            end = tenant.phases[index + 1].at if index + 1 < len(tenant.phases) else self._scenario.duration
            if end <= clock or phase.rate <= 0:
                continue
            when = max(clock, phase.at) + self._arrival_random[tenant.name].expovariate(phase.rate)
            if when < end:
                self.at(when, lambda: self._arrive(tenant))
                return
            clock = end

    def _arrive(self, tenant: Tenant) -> None:
        message = Message(tenant.name, self.now)
        message.poison = tenant.poison > 0 and self._poison_random.random() < tenant.poison
        self._offer(message)
        self._next_arrival(tenant)

    def _next_of_trace(self) -> None:
        arrival = next(self._trace, None)
        if arrival is not None:
            self.at(arrival.at, lambda: self._arrive_as(arrival))

    def _arrive_as(self, arrival: Arrival) -> None:
        offered = self.now if arrival.offered is None else arrival.offered
        self._offer(Message(arrival.tenant, offered, work=arrival.work))
        self._next_of_trace()

    def _offer(self, message: Message) -> None:
        """Let the producer of ``message`` send, hold or shed it."""
        account = self.accounts[message.tenant]
        account.offered += 1
        if not account.held and self._may_send(message.tenant):
            self._enqueue(message)
        elif self._scenario.producer == "shed":
            account.shed += 1
        else:
            account.held.append(message)
            if len(account.held) == 1:
                self._send_held(message.tenant)

    def _may_send(self, tenant: str) -> bool:
        entry = self._limits.get(tenant)
        if entry is None or entry[2] <= self.now:
            self._limits.pop(tenant, None)
            return True
        bucket, level, valid_until = entry
        taken = token_bucket.take(bucket, level, self.now)
        self._limits[tenant] = (bucket, taken.level, valid_until)
        return taken.allowed

    def _send_held(self, tenant: str) -> None:
        """Send what may go, and look again when the next may; an earlier plan to look is void."""
        held = self.accounts[tenant].held
        self._plans[tenant] = plan = next(self._order)
        while held and self._may_send(tenant):
            self._enqueue(held.popleft())
        if held:
            bucket, level, valid_until = self._limits[tenant]
            wait = token_bucket.take(bucket, level, self.now).wait_seconds
            when = min(self.now + max(wait, 1e-6), max(self.now, valid_until))
            self.at(when, lambda: self._send_if_planned(tenant, plan))

    def _send_if_planned(self, tenant: str, plan: int) -> None:
        if self._plans[tenant] == plan:
            self._send_held(tenant)

    def _enqueue(self, message: Message) -> None:
        message.enqueued_at = self.now
        account = self.accounts[message.tenant]
        account.backlog[id(message)] = self.now
        account.ready += 1
        account.last_arrival = self.now
        _add(account.arrivals, self.now, 1)
        self._waiting.put(message.tenant, message)
        self._start()

    def _start(self) -> None:
        while self._idle > 0 and self._waiting and not self._stopped:
            _, message = self._waiting.take()
            self._idle -= 1
            account = self.accounts[message.tenant]
            account.ready -= 1
            account.in_flight += 1
            message.attempts += 1
            if message.attempts == 1:
                self.first_attempts.append(
                    FirstAttempt(
                        message.tenant, self.now, self.now - message.enqueued_at, self.now - message.offered_at
                    )
                )
            message.processing = (
                message.work[message.attempts - 1]
                if message.work
                else self._draw_service(self._tenants[message.tenant].service_mean)
            )
            self.at(self.now + message.processing, lambda message=message: self._complete(message))  # type: ignore[misc]

    def _complete(self, message: Message) -> None:
        account = self.accounts[message.tenant]
        account.in_flight -= 1
        if self._fails(message):
            account.ready += 1
            self._waiting.put(message.tenant, message)
        else:  # completed, or given up: either way it is gone
            account.completed += 1
            del account.backlog[id(message)]
            _add(account.completions, self.now, 1)
        account.processing[int(self.now)] = account.processing.get(int(self.now), 0.0) + message.processing
        self._waiting.done(message.tenant, message.processing)
        self._idle += 1
        self._start()

    def _fails(self, message: Message) -> bool:
        """Whether it fails and is tried again."""
        failing = self._scenario.failing
        if message.attempts >= (len(message.work) or failing.attempts):
            return False
        if message.poison or message.work:
            return True
        return failing.start <= self.now < failing.end and self._failure_random.random() < failing.part

    def _draw_service(self, mean: float | None = None) -> float:
        mean = (self._scenario.service_mean if mean is None else mean) * self._slowness
        if self._scenario.service == "constant":
            return mean
        if self._scenario.service == "lognormal":
            return lognormal(self._service_random, mean)
        return self._service_random.expovariate(1 / mean)

    def _scale(self, more: int) -> None:
        self._idle += more
        self._start()

    def _stop(self) -> None:
        self._stopped = True

    def _resume(self) -> None:
        self._stopped = False
        self._start()


def lognormal(chance: random.Random, mean: float) -> float:
    """A draw of that mean, and a standard deviation as large."""
    sigma = 0.8325546111576977  # √ln 2
    return chance.lognormvariate(0.0, sigma) * mean / 2**0.5


def _add(seconds: dict[int, int], at: float, n: int) -> None:
    seconds[int(at)] = seconds.get(int(at), 0) + n
