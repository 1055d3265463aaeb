"""Standing entitlements in the simulated world: the shipped law, and producers that hear of it a lag later."""

from __future__ import annotations

from dataclasses import dataclass, field

from alerts.laws import entitlement
from alerts.laws.costs import Costs
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
    costs: Costs = field(default_factory=Costs)
    rates: dict[str, float] = field(default_factory=dict)
    #: The seconds in which entitlements were binding.
    binding: list[float] = field(default_factory=list)

    def look(self, now: float) -> None:
        """One look at ``now``."""
        seen, lag = self._seen(now), self.scenario.lag_seconds
        before, (self.state, _) = self.state, entitlement.step(self.terms, seen, self.state, now, self.rates)
        self.habits.look(seen.arrivals, congested=self.state.congested)
        self.rates, _ = entitlement.entitlements(self.terms, seen, self.state, self.habits.usual, 0.0)
        if self.state.congested:
            self.binding.append(now)
            rates = {name: max(1.0, rate / self.costs.of(name)) for name, rate in self.rates.items()}
            until = now + lag + self.terms.lease_seconds
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
        accounts, last = self.queue.accounts, int(now) - 1
        self.costs.look(
            {name: account.processing.get(last, 0.0) for name, account in accounts.items()},
            {name: account.completions.get(last, 0) for name, account in accounts.items()},
        )
        return entitlement.in_work(
            {name: account.ready for name, account in accounts.items()},
            {
                name: sum(account.completions.get(s, 0) for s in seconds) / RECENT_SECONDS
                for name, account in accounts.items()
            },
            {
                name: sum(account.arrivals.get(s, 0) for s in seconds) / RECENT_SECONDS
                for name, account in accounts.items()
            },
            self.costs,
        )
