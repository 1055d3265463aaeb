"""One queue with standing entitlements, look by look: the order of steps that the alert process and the lab share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from alerts.laws.costs import Costs
from alerts.laws.entitlement import Habits, State, Terms, entitlements, in_work, step

#: Nobody is entitled to fewer messages a second.
LEAST = 1.0
#: How much of a look counts in what a tenant sent lately.
SMOOTHING = 0.1
#: Who sent less lately than this part of the least rate is forgotten.
FORGOTTEN_BELOW = 0.01


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a queue, by tenant: messages that wait, what was finished and came (messages a second), and the
    seconds of work that went into it, a second."""

    waiting: Mapping[str, float]
    finished: Mapping[str, float]
    arrivals: Mapping[str, float]
    work: Mapping[str, float]


@dataclass(slots=True)
class EntitledQueue:
    """What is remembered of a queue: the law's state, tenants' habits, what their messages cost.

    ``agreed`` rates (messages/s) are the operator's; others are learnt. After a :meth:`look`, ``rates`` are what each
    tenant that sends may send (messages/s), ``anybody`` what one may that was never seen.
    """

    terms: Terms
    agreed: Mapping[str, float] = field(default_factory=dict)
    state: State = field(default_factory=State)
    habits: Habits = field(default_factory=Habits)
    costs: Costs = field(default_factory=Costs)
    lately: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)  # as the law has them: in work
    rates: dict[str, float] = field(default_factory=dict)
    anybody: float = LEAST

    def look(self, one: Look, now: float) -> str:
        """One look at ``now`` (seconds): whether it is congested says ``state``; returns why."""
        known = self.costs.known
        self.costs.look(one.work, one.finished)
        if self.costs.known != known:  # from now on all is counted in seconds of work, what is remembered in messages
            self.state, self.habits, self.shares, self.lately = State(), Habits(), {}, {}
        seen = in_work(one.waiting, one.finished, one.arrivals, self.costs)
        self.state, reason = step(self.terms, seen, self.state, now, self.shares, self.lately)
        self._note(seen.arrivals)
        self.habits.look(seen.arrivals, congested=self.state.congested)
        self.shares, anybody = entitlements(self.terms, seen, self.state, self.habits.usual, 0.0)
        self.rates = {name: max(LEAST, share / self.costs.of(name)) for name, share in self.shares.items()}
        self.anybody = max(LEAST, anybody / self.costs.mean)
        for name, rate in self.agreed.items():
            self.rates[name], self.shares[name] = rate, rate * self.costs.of(name)
        return reason

    def let_go(self) -> None:
        """Bind nobody, and remember what consumers can finish."""
        self.state = State(self.state.capacity)

    def _note(self, arrivals: Mapping[str, float]) -> None:
        for name in {*self.lately, *arrivals}:
            before = self.lately.get(name, arrivals.get(name, 0.0))
            self.lately[name] = before + SMOOTHING * (arrivals.get(name, 0.0) - before)
            if self.lately[name] < FORGOTTEN_BELOW * LEAST * self.costs.mean:
                del self.lately[name]
