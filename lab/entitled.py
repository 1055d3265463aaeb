"""Standing entitlements in the simulated world: the shipped steps, and producers that hear of it a lag later."""

from __future__ import annotations

from dataclasses import dataclass, field

from alerts.laws.entitled_queue import EntitledQueue, Look
from alerts.laws.entitlement import LOOK_SECONDS, Terms
from lab.queue import Queue
from lab.scenario import Scenario

#: What a bucket holds when its queue becomes congested.
FIRST_TOKENS = 1.0


@dataclass(slots=True)
class Entitled:
    """Looks at ``queue`` as often as the law wants it; lets producers know what they may send while it is congested."""

    queue: Queue
    scenario: Scenario
    law: EntitledQueue = field(default_factory=lambda: EntitledQueue(Terms()))
    #: The seconds in which entitlements were binding.
    binding: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Begin to look."""
        self.queue.at(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = self.queue.now
        self.queue.at(now + LOOK_SECONDS, self._look)
        lag, before = self.scenario.lag_seconds, self.law.state.congested
        self.law.look(self._seen(now), now)
        if self.law.state.congested:
            self.binding.append(now)
            rates, until = dict(self.law.rates), now + lag + self.law.terms.lease_seconds
            self.queue.at(now + lag, lambda: self._bind(rates, until))
        elif before:
            self.queue.at(now + lag, self._let_go)

    def _bind(self, rates: dict[str, float], until: float) -> None:
        for name, rate in rates.items():
            self.queue.limit(name, rate, until, first=FIRST_TOKENS)

    def _let_go(self) -> None:
        for name in self.queue.accounts:
            self.queue.release(name)

    def _seen(self, now: float) -> Look:
        seconds, span = (int(now) - 1, int(now)), 1 + now % 1  # as the views have it: the newest second still fills
        accounts = self.queue.accounts

        def rate(of: dict[int, float] | dict[int, int]) -> float:
            return sum(of.get(second, 0) for second in seconds) / span

        arrivals = {name: rate(account.arrivals) for name, account in accounts.items()}
        return Look(
            {name: account.ready for name, account in accounts.items()},
            {name: rate(account.completions) for name, account in accounts.items()},
            {name: found for name, found in arrivals.items() if found > 0},
            {name: rate(account.processing) for name, account in accounts.items()},
        )
