"""One queue with standing entitlements, look by look: the order of steps that the alert process and the lab share.

Looks come from metrics: who sends what, what is finished, what waits, all of it a second old. Between them the broker
may tell how many messages wait now, many times a second: a *glance*. It changes how much those get who are held back,
and whether entitlements bind; never who is held, which only metrics tell. Glances count while metrics come as well and,
a moment later, tell of as many messages; else all is as if there were none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from alerts.laws.costs import Costs
from alerts.laws.entitlement import (
    COUNTED_ANEW,
    Seen,
    Senders,
    State,
    drained,
    entitlements,
    in_work,
    judge,
    learn,
    senders,
)
from alerts.laws.glanced import GlancedTerms
from alerts.laws.habits import Habits
from sojourn.client.groups import Onsets, Patterns

#: Nobody is entitled to fewer messages a second.
LEAST = 1.0
#: Who sent nothing for so long is not waiting for anybody (seconds).
GONE_SECONDS = 5.0
#: How much of a look counts in what a tenant sent lately.
SMOOTHING = 0.1
#: A glance counts for so long, and while the last look is no older than that (seconds).
GLANCE_SECONDS, LOOK_OLD_SECONDS = 1.0, 5.0
#: A queue that is longer than this (seconds of wait) drains for a while: tenths of a second do not matter to it.
SHORT_SECONDS = 2.0
#: Metrics are as far behind glances as this at most where both are right (seconds).
BEHIND_SECONDS = 5.0
#: Looks that must have told of as many messages as glances did before these count; so many of the last are remembered.
AGREED, AGREED_MOST = 3, 6
#: Both tell of as many if they differ by no more than a factor of two and so many messages.
ALIKE, ALIKE_MESSAGES = 2.0, 20.0


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a queue, by tenant: messages that wait, what was finished and came (messages a second), and the
    seconds of work that went into it, a second; counted over so many ``seconds``."""

    waiting: Mapping[str, float]
    finished: Mapping[str, float]
    arrivals: Mapping[str, float]
    work: Mapping[str, float]
    seconds: float


@dataclass(slots=True)
class EntitledQueue:
    """What is remembered of a queue: the law's state, tenants' habits, what their messages cost.

    ``agreed`` rates (messages/s) are the operator's, by tenant or declared group; others are learnt. To the law a group
    is one: those whose names fit one of ``patterns``, and those who began together (:mod:`sojourn.client.groups`).
    After a :meth:`look`, ``rates`` are what each tenant that sends may send (messages/s), or a declared group's tenants
    together; ``anybody`` what one may that was never seen; ``groups`` who began together, by tenant.
    """

    terms: GlancedTerms
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
    #: When metrics were looked at last, what they showed as the law counts it, and who is of which unit.
    looked_at: float | None = None
    seen: Seen = field(default_factory=lambda: Seen(0.0, 0.0, {}))
    members: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Glances of the last seconds (when, messages), what a waiting message costs, and how many looks agreed with them.
    glances: deque[tuple[float, float]] = field(default_factory=deque)
    cost: float = 1.0
    agreed_looks: int = 0
    #: What those who are held might send in the seconds of a look, where that is known better than by ``shares``.
    may: dict[str, float] = field(default_factory=dict)
    _who: Senders | None = None

    def look(self, one: Look, now: float, *, until: float) -> str:
        """One look at ``now`` (seconds) of what came ``until`` then: whether it is congested says ``state``; returns
        why."""
        known = self.costs.known
        self.costs.look(one.work, one.finished)
        if self.costs.known != known:  # from now on all is counted in seconds of work, what is remembered in messages
            settled = self.state.capacity > 0 and not self.state.young
            self.state, self.habits = COUNTED_ANEW if settled else State(), Habits()
            self.shares, self.lately = {}, {}
        units = self._units(one, now)
        alone = in_work(one.waiting, one.finished, one.arrivals, self.costs)
        seen = in_work(one.waiting, one.finished, one.arrivals, self.costs, units, one.work, one.seconds)
        total = sum(one.waiting.values())
        self.cost = seen.waiting / total if total > 0 else self.costs.mean
        self._compare(total, now)
        self.looked_at, self.seen, self._who = now, seen, None
        wait = self._glanced(now)
        terms = self.terms if wait is None else self.terms.quick()
        self.state = learn(self.terms, seen, self.state, now)
        if self.state.capacity <= 0:
            wait, reason = None, "nothing was ever finished: consumers are at fault"
        else:
            if wait is None:
                wait = seen.waiting / self.state.capacity
            self.state, reason = judge(terms, wait, self._senders, self.state, now, shown_until=until)
        self._note(seen.arrivals, now)
        self.habits.look(seen.arrivals, congested=self.state.congested)
        self.shares, anybody = entitlements(terms, seen, self.state, self.habits.usual, 0.0, wait)
        self.rates, self.members = {}, {}
        for name, unit in units.items():
            self.members.setdefault(unit, {})[name] = alone.arrivals.get(name, 0.0)
        for unit, share in self.shares.items():
            self._tell(unit, share, self.members.get(unit, {}))
        self._tell_others(anybody, now)
        if named := sorted(self.state.held & set(self.groups.values())):
            reason += f"; held as one: {', '.join(named)}"
        return reason

    def glance(self, waiting: float, now: float) -> str | None:
        """``waiting`` messages are in the broker at ``now``; returns what follows and why, None if nothing."""
        self.glances.append((now, waiting))
        while self.glances[0][0] < now - BEHIND_SECONDS:
            self.glances.popleft()
        self.terms = self.terms.after([at for at, _ in self.glances])
        wait = self._glanced(now)
        if wait is None:
            return None
        terms, among = self.terms.quick(), sum(rate > 0 for rate in self.lately.values())
        self.state, reason = judge(terms, wait, self._senders, self.state, now, presume=among > 1)
        if self.state.congested:
            held, anybody = drained(terms, self.seen.arrivals, self.state, self.habits.usual, 0.0, wait)
            self.shares |= held
            for unit, share in held.items():
                self._tell(unit, share, self.members.get(unit, {}))
            self._tell_others(anybody, now)
        return reason

    def confirmed(self, now: float) -> bool:
        """Whether glances are fresh at ``now``, and metrics confirm them."""
        alive = self.looked_at is not None and now - self.looked_at <= LOOK_OLD_SECONDS
        fresh = bool(self.glances) and now - self.glances[-1][0] <= GLANCE_SECONDS
        return alive and fresh and self.agreed_looks >= AGREED

    @property
    def hurried(self) -> bool:
        """Whether the next glance should come soon: what binds changes with it, or may begin to."""
        if self.state.congested:
            return True
        waits = self.glances[-1][1] * self.cost if self.glances else 0.0
        return waits > self.terms.quick().exit_seconds * self.state.capacity

    def let_go(self) -> None:
        """Bind nobody, and remember what consumers can finish."""
        self.state = State(self.state.capacity)

    def _glanced(self, now: float) -> float | None:
        """How long messages wait by the last glance, in seconds; None where it says nothing, or is of no use."""
        if self.state.capacity <= 0 or not self.confirmed(now):
            return None
        wait = self.glances[-1][1] * self.cost / self.state.capacity
        return wait if wait <= SHORT_SECONDS else None

    def _compare(self, waiting: float, now: float) -> None:
        """Whether metrics tell of as many messages as glances did: who looks at another queue must not be believed."""
        lately = [told for at, told in self.glances if at >= now - BEHIND_SECONDS]
        if not lately:
            self.agreed_looks = 0
        elif min(lately) / ALIKE - ALIKE_MESSAGES <= waiting <= max(lately) * ALIKE + ALIKE_MESSAGES:
            self.agreed_looks = min(AGREED_MOST, self.agreed_looks + 1)
        else:
            self.agreed_looks = max(0, self.agreed_looks - 1)

    def _senders(self) -> Senders:
        if self._who is None:
            self.may = {unit: may for unit, may in self.may.items() if unit in self.state.held}
            self._who = senders(self.seen, self.state, self.shares | self.may, self.lately)
        return self._who

    def _tell_others(self, anybody: float, now: float) -> None:
        """What one may that was never seen, and those with whom a rate is agreed."""
        self.anybody = max(LEAST, anybody / self.costs.mean)
        if self.onsets.grows(now) and self.state.congested:  # a stranger is likely to be one more of them
            self.anybody = min([self.anybody, *(self.rates[name] for name in self.groups if self.rates.get(name))])
        for name, rate in self.agreed.items():
            self.rates[name], self.shares[name] = rate, rate * self.costs.of(name)

    def _units(self, one: Look, now: float) -> dict[str, str]:
        """As :meth:`units_of` all who are seen, once it is known who came."""
        for name, rate in one.arrivals.items():
            if rate > 0:
                self.onsets.came(name, now)
        self.groups = self.onsets.members(now)
        return self.units_of({*one.waiting, *one.finished, *one.arrivals})

    def units_of(self, names: Iterable[str]) -> dict[str, str]:
        """Who is of a group, and of which: those who began together, and those of ``names`` that fit a pattern. Alone
        are all others."""
        if not self.patterns:
            return self.groups
        return self.groups | {name: fits for name in names if (fits := self.patterns.of(name)) is not None}

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
