"""Standing entitlements in the simulated world: the shipped law, and producers that hear of it a lag later."""

from __future__ import annotations

from dataclasses import dataclass, field

from alerts.laws import entitlement
from alerts.laws.entitlement import Habits, Seen, State, Terms
from lab.queue import Queue
from lab.scenario import Scenario

#: Arrivals and throughput are counted over so many whole seconds.
RECENT_SECONDS = 2


@dataclass(slots=True)
class Entitled:
    """Looks at ``queue`` once a second, and lets producers know what they are entitled to while it is congested."""

    queue: Queue
    scenario: Scenario
    terms: Terms = field(default_factory=Terms)
    state: State = field(default_factory=State)
    habits: Habits = field(default_factory=Habits)
    rates: dict[str, float] = field(default_factory=dict)
    #: The seconds in which entitlements were binding.
    binding: list[float] = field(default_factory=list)

    def look(self, now: float) -> None:
        """One look at ``now``."""
        seen, lag = self._seen(now), self.scenario.lag_seconds
        before, (self.state, _) = self.state, entitlement.step(self.terms, seen, self.state, now, self.rates)
        self.habits.look(seen.arrivals, congested=self.state.congested)
        self.rates, _ = entitlement.entitlements(self.terms, seen, self.state, self.habits.usual)
        if self.state.congested:
            self.binding.append(now)
            rates, until = dict(self.rates), now + lag + self.terms.lease_seconds
            self.queue.at(now + lag, lambda: self._bind(rates, until))
        elif before.congested:
            self.queue.at(now + lag, self._let_go)

    def _bind(self, rates: dict[str, float], until: float) -> None:
        for name, rate in rates.items():
            self.queue.limit(name, rate, until)

    def _let_go(self) -> None:
        for name in self.queue.accounts:
            self.queue.release(name)

    def _seen(self, now: float) -> Seen:
        seconds = range(int(now) - RECENT_SECONDS, int(now))
        accounts = self.queue.accounts
        return Seen(
            waiting=sum(account.ready for account in accounts.values()),
            finish_rate=sum(account.completions.get(s, 0) for account in accounts.values() for s in seconds)
            / RECENT_SECONDS,
            arrivals={
                name: sum(account.arrivals.get(s, 0) for s in seconds) / RECENT_SECONDS
                for name, account in accounts.items()
            },
        )
