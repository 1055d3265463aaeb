"""One queue with standing entitlements, look by look: the order of steps that the alert process and the lab share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from alerts.laws.costs import Costs
from alerts.laws.entitlement import Habits, State, Terms, entitlements, in_work, step
from sojourn.client.groups import Onsets, Patterns

#: Nobody is entitled to fewer messages a second.
LEAST = 1.0
#: Who sent nothing for so long is not waiting for anybody (seconds).
GONE_SECONDS = 5.0
#: How much of a look counts in what a tenant sent lately.
SMOOTHING = 0.1


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

    ``agreed`` rates (messages/s) are the operator's, by tenant or declared group; others are learnt. To the law a group
    is one: those whose names fit one of ``patterns``, and those who began together (:mod:`sojourn.client.groups`).
    After a :meth:`look`, ``rates`` are what each tenant that sends may send (messages/s), or a declared group's tenants
    together; ``anybody`` what one may that was never seen; ``groups`` who began together, by tenant.
    """

    terms: Terms
    agreed: Mapping[str, float] = field(default_factory=dict)
    patterns: Patterns = field(default_factory=Patterns)
    state: State = field(default_factory=State)
    habits: Habits = field(default_factory=Habits)
    costs: Costs = field(default_factory=Costs)
    onsets: Onsets = field(default_factory=Onsets)
    lately: dict[str, float] = field(default_factory=dict)
    seen_at: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)  # as the law has them: of units, in work
    rates: dict[str, float] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    anybody: float = LEAST

    def look(self, one: Look, now: float) -> str:
        """One look at ``now`` (seconds): whether it is congested says ``state``; returns why."""
        known = self.costs.known
        self.costs.look(one.work, one.finished)
        if self.costs.known != known:  # from now on all is counted in seconds of work, what is remembered in messages
            self.state, self.habits, self.shares, self.lately = State(), Habits(), {}, {}
        units = self._units(one, now)
        alone = in_work(one.waiting, one.finished, one.arrivals, self.costs)
        seen = in_work(one.waiting, one.finished, one.arrivals, self.costs, units)
        self.state, reason = step(self.terms, seen, self.state, now, self.shares, self.lately)
        self._note(seen.arrivals, now)
        self.habits.look(seen.arrivals, congested=self.state.congested)
        self.shares, anybody = entitlements(self.terms, seen, self.state, self.habits.usual, 0.0)
        self.rates, self.anybody = {}, max(LEAST, anybody / self.costs.mean)
        members: dict[str, dict[str, float]] = {}
        for name, unit in units.items():
            members.setdefault(unit, {})[name] = alone.arrivals.get(name, 0.0)
        for unit, share in self.shares.items():
            self._tell(unit, share, members.get(unit, {}))
        if self.onsets.grows(now) and self.state.congested:  # a stranger is likely to be one more of them
            self.anybody = min([self.anybody, *(self.rates[name] for name in self.groups if self.rates.get(name))])
        if named := sorted(self.state.held & set(self.groups.values())):
            reason += f"; held as one: {', '.join(named)}"
        for name, rate in self.agreed.items():
            self.rates[name], self.shares[name] = rate, rate * self.costs.of(name)
        return reason

    def let_go(self) -> None:
        """Bind nobody, and remember what consumers can finish."""
        self.state = State(self.state.capacity)

    def _units(self, one: Look, now: float) -> dict[str, str]:
        """Who is of a group, and of which; alone are all others."""
        for name, rate in one.arrivals.items():
            if rate > 0:
                self.onsets.came(name, now)
        self.groups = self.onsets.members(now)
        if not self.patterns:
            return self.groups
        named = {name: self.patterns.of(name) for name in {*one.waiting, *one.finished, *one.arrivals}}
        return self.groups | {name: pattern for name, pattern in named.items() if pattern is not None}

    def _tell(self, unit: str, share: float, members: Mapping[str, float]) -> None:
        """What ``share`` of work is in messages, to whom: a tenant, a declared group, or each member of another."""
        if not members:
            self.rates[unit] = max(LEAST, share / self.costs.of(unit))
        elif self.patterns.of(next(iter(members))) == unit:
            work = sum(members.values())
            messages = sum(rate / self.costs.of(name) for name, rate in members.items())
            self.rates[unit] = max(LEAST, share * messages / work if work > 0 else share / self.costs.mean)
        else:
            for name in members:  # each an equal part: what one leaves another has no way to know
                self.rates[name] = max(LEAST / len(members), share / len(members) / self.costs.of(name))

    def _note(self, arrivals: Mapping[str, float], now: float) -> None:
        self.seen_at.update((name, now) for name, rate in arrivals.items() if rate > 0)
        for name, at in list(self.seen_at.items()):
            if now - at > GONE_SECONDS:
                del self.seen_at[name]
                self.lately.pop(name, None)
                continue
            before = self.lately.get(name, arrivals.get(name, 0.0))
            self.lately[name] = before + SMOOTHING * (arrivals.get(name, 0.0) - before)
