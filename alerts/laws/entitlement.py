"""What each tenant may send whatever the others do, and when that binds: only while its queue is congested.

A limit that follows an alert comes a pipeline's delay late. What a tenant is entitled to is known before: the client
has it all the time, and all that must travel when a queue gets behind is one bit with a lease.

* A tenant is entitled to its max-min share (:mod:`alerts.laws.max_min`) of the others as they are – and never to less
  than the 99th percentile of its own past, learnt while nobody was held back. Doing what it always did, no tenant is
  limited.
* A queue is congested once its messages are expected to wait longer than ``enter_seconds``, by Little's law, waiting ÷
  throughput; until they wait less than ``exit_seconds`` *and* nobody has used up what it is entitled to for
  ``calm_seconds``. Were the bit to end with the queue, a flood would come back in waves.
* It protects somebody, or does not bind: somebody sends more than its share while another keeps clearly within its own.
  Where all alike send too much, or all that waits came before, shares would make some wait longer than others.
* Who is held asks for what it asked for before: what it sends since says nothing of that. By what they ask for it is
  judged whom it helps that some are held, and where messages wait for long who asks for no more than its share is let
  go: while too little was believed of consumers the quiet were held, too.
* Consumers that stand still are nobody's noise: nobody is held for an outage, during it or for what it left behind.
* It conserves work: while the wait is short and somebody is held back, shares are of more than the throughput seen, so
  that they grow until messages wait again; while it is long, of less, so that the backlog drains.
* How long messages wait may be known sooner than who sends what: the broker tells its queue's depth at once, the
  pipeline of metrics a second later. :func:`judge` therefore takes the wait apart from what is known of the senders.
  It may presume (``presume``) that somebody floods a queue which has just begun to wait: who keeps to what it is
  entitled to loses nothing by that, and it ends once metrics show what came since, and do not confirm it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from alerts.laws.costs import Costs
from alerts.laws.max_min import beyond, share, shares
from sojourn.client.groups import grouped

#: So often a queue is looked at (seconds): what counts by looks below is meant for that.
LOOK_SECONDS = 0.5
#: Who sends this part of what it is entitled to may be held back.
USED_UP = 0.9
#: Who sends at most this part of what those beyond their shares send on average keeps within its own, by more than
#: chance.
WITHIN = 0.4
#: Who sends less than this part of what it may is no longer held back.
LET_GO = 0.5
#: Where messages wait for so long (seconds), who is held and asks for no more than its share is no longer held.
LETTING_SECONDS = 0.5
#: How much of the throughput seen at one look is believed; a higher one is believed while nothing waits, and 0.25 % of
#: what was once seen forgotten.
SMOOTHING, FORGETTING = 0.2, 0.005
#: The same of what was shown while messages wait, to which shares return once servers idle for them.
SHOWING = 0.3
#: So many looks after something was first finished what consumers can is not known well enough to hold anybody to a
#: part of it: rates are counted over seconds that were not all seen.
YOUNG_LOOKS = 3
#: Consumers that finish less than this part of what they can, while messages wait, stand still.
STOPPED = 0.1
#: Where messages wait for so long already (seconds), more than a share is what a tenant sends over seconds, not by
#: chance.
LONG_SECONDS = 5.0
#: Of work that takes longer than this part of the time that rates are counted over, messages are counted: it ends in
#: lumps.
LUMPS = 0.5
#: What one sends in one look is taken for so many standard deviations less, down to what it lately sent, until
#: somebody is held.
CHANCE = 1.0
#: Where those who are held leave less than this waiting (seconds) for so long as it takes to see what they send,
#: servers idle for them: shares are of so many times more, each second, up to so many times what was known then.
NOTHING_SECONDS, IDLE_SECONDS, GROWING, GROWN_MOST = 0.03, 1.0, 3.0, 2.0
#: So many standard deviations are no chance. Who finishes so many times what consumers could, and leaves nothing
#: waiting, has been helped: once somebody has been held for so long (seconds) that it is known what they could.
DEVIATIONS, HELPED, KNOWN_SECONDS = 3.0, 1.15, 3.0
#: It is presumed that somebody floods a queue that begins to wait until metrics show so much of what came since, and
#: tell of nobody; at most for so long. What they did not confirm is not presumed again for so long (seconds).
SHOWN_SECONDS, PRESUMED_SECONDS, NOT_AGAIN_SECONDS = 1.0, 5.0, 60.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator agreed to; times in seconds."""

    enter_seconds: float = 0.3
    exit_seconds: float = 0.2
    calm_seconds: float = 10.0
    lease_seconds: float = 10.0
    drain_seconds: float = 5.0
    least_part: float = 0.5
    probing: float = 1.1

    def __post_init__(self) -> None:
        if not 0 <= self.exit_seconds <= self.enter_seconds or self.enter_seconds <= 0:
            raise ValueError(
                f"exit {self.exit_seconds} s must be at most enter {self.enter_seconds} s, which is above 0"
            )
        if not 0 < self.least_part <= 1 <= self.probing or self.drain_seconds <= 0:
            raise ValueError(f"part {self.least_part} must be in (0, 1], probing {self.probing} at least 1")

    def quick(self) -> Terms:
        """The terms while the depth is known at once: feedback without delay may be stronger, on a shorter queue.

        Chosen in the lab (docs/adr/0014); what the operator set tighter stays.
        """
        enter = min(self.enter_seconds, 0.15)
        return replace(
            self, enter_seconds=enter, exit_seconds=min(self.exit_seconds, 0.05, enter), drain_seconds=0.5, probing=1.05
        )

    def part(self, wait: float) -> float:
        """Which part of the throughput is shared out while messages wait ``wait`` seconds: the rest drains them."""
        if wait <= self.exit_seconds:
            return self.probing
        return max(self.least_part, 1 - (wait - self.exit_seconds) / self.drain_seconds)


@dataclass(frozen=True, slots=True)
class Seen:
    """A queue now: messages that wait and are not in flight, what was finished and what each tenant sent, a second.

    All in messages, or all in seconds of work that they cost: see :func:`in_work`.
    """

    waiting: float
    finish_rate: float
    arrivals: Mapping[str, float]
    #: What one standard deviation of chance is in what was finished and what came, where that is known.
    finish_deviation: float = 0.0
    deviations: Mapping[str, float] = field(default_factory=dict)


def in_work(
    waiting: Mapping[str, float],
    finished: Mapping[str, float],
    arrivals: Mapping[str, float],
    costs: Costs,
    units: Mapping[str, str] = MappingProxyType({}),
    work: Mapping[str, float] = MappingProxyType({}),
    seconds: float = math.inf,
) -> Seen:
    """A queue as its tenants have it (messages, messages a second), counted in seconds of work; what comes by tenant,
    or by the unit that ``units`` says it is of.

    What was finished is the ``work`` that was done (seconds a second), where it is told: consumers that fail, and try
    again, do as much of it as others do, and it varies far less than how many messages that was.
    """
    rate = spread = 0.0
    for name in {*work, *finished}:
        cost, count = costs.of(name), finished.get(name, 0.0)
        done = work.get(name, 0.0) if cost < LUMPS * seconds else 0.0
        done = done or count * cost
        cost = max(cost, done / count) if count > 0 else cost
        rate, spread = rate + done, spread + 2 * done * cost * min(1.0, cost / seconds) / seconds
    varying = grouped({name: rate * costs.of(name) ** 2 / seconds for name, rate in arrivals.items()}, units)
    return Seen(
        sum(count * costs.of(name) for name, count in waiting.items()),
        rate,
        grouped({name: rate * costs.of(name) for name, rate in arrivals.items()}, units),
        math.sqrt(spread),
        {name: math.sqrt(variance) for name, variance in varying.items()},
    )


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of a queue: the throughput that is shared out, and what was shown while messages waited; since
    when it is congested, and calm."""

    capacity: float = 0.0
    shown: float = 0.0
    congested_since: float | None = None
    calm_since: float | None = None
    #: Who is held: who sent more than its share, and sends what it may since. What each asks for is the most that it
    #: was seen to send: once it obeys, what it sends says nothing of that.
    asked: Mapping[str, float] = field(default_factory=dict)
    #: Since when the congestion is presumed; and when it last was, without having been confirmed.
    presumed_since: float | None = None
    unconfirmed_since: float | None = None
    #: Looks until ``capacity`` is known well enough (:data:`COUNTED_ANEW`: with the next); whether consumers stand
    #: still, so that nothing is learnt of it.
    young: int = 0
    stopped: bool = False
    #: Since when nothing waits though somebody is held, what consumers could then, and how much is shared out, lest
    #: servers idle, until something waits.
    idle_since: float | None = None
    idle_capacity: float = 0.0
    reach: float = 0.0

    @property
    def congested(self) -> bool:
        """Whether entitlements bind."""
        return self.congested_since is not None

    @property
    def held(self) -> frozenset[str]:
        """Who is held to its share."""
        return frozenset(self.asked)


#: Of a queue that was looked at for long, and is counted in another unit from now on.
COUNTED_ANEW = State(young=1)


def protects(capacity: float, held: frozenset[str], demands: Mapping[str, float]) -> bool:
    """Whether somebody keeps clearly within its share, whom it helps that those ``held`` keep to theirs."""
    if not held:
        return False
    found = shares(capacity, demands)
    mean = sum(max(demands.get(name, 0.0), found.get(name, 0.0)) for name in held) / len(held)
    return any(0 < rate <= WITHIN * mean for name, rate in demands.items() if name not in held)


@dataclass(frozen=True, slots=True)
class Senders:
    """What arrivals say of who keeps whom waiting: it changes as often as metrics come."""

    beyond: frozenset[str] = frozenset()
    #: Whether somebody is protected if those keep to their shares.
    helps: bool = False
    #: What those ask for, and who was held, goes on to send what it may, and asks for more than its share; whether
    #: somebody asks for clearly less than the one of them that asks for the most; how many send all that they may.
    asked: Mapping[str, float] = field(default_factory=dict)
    helps_held: bool = False
    used_up: int = 0


def senders(
    seen: Seen,
    state: State,
    in_force: Mapping[str, float],
    lately: Mapping[str, float] = MappingProxyType({}),
) -> Senders:
    """Who sends more than its share of what consumers can; for ``in_force`` and ``lately`` see :func:`step`."""
    chance = 0.0 if state.congested and state.presumed_since is None else CHANCE
    if is_long := seen.waiting > LONG_SECONDS * state.capacity:
        chance = DEVIATIONS
    believed = {
        name: min(rate, max(lately.get(name, rate), rate - chance * seen.deviations.get(name, 0.0)))
        for name, rate in seen.arrivals.items()
    }
    demands = {name: max(believed.get(name, 0.0), lately.get(name, 0.0)) for name in {*believed, *lately}}
    sends = {name: min(rate, lately.get(name, rate)) for name, rate in believed.items()} if is_long else believed
    those = beyond(state.capacity, sends)
    grown = max(1.0, state.reach / state.capacity) if state.capacity > 0 else 1.0
    may = {name: in_force.get(name, math.inf) / grown for name in seen.arrivals}
    still = {name for name, rate in seen.arrivals.items() if name in state.asked and rate >= LET_GO * may[name]}
    asks = {name: max(rate, state.asked[name]) if name in still else rate for name, rate in believed.items()}
    if seen.waiting > LETTING_SECONDS * state.capacity:  # else what they ask for may not have shown
        still &= beyond(state.capacity, asks)
    asked = {name: asks[name] for name in those | still}
    most = max(asked.values(), default=0.0)
    helps_held = any(0 < rate <= WITHIN * most for rate in (demands | asked).values())
    used_up = sum(seen.arrivals[name] >= USED_UP * may[name] for name in asked)
    return Senders(those, protects(state.capacity, those, demands), asked, helps_held, used_up)


def learn(terms: Terms, seen: Seen, state: State, now: float) -> State:
    """What a look at ``now`` says of the consumers: ``capacity``, ``shown``, and whether they have been helped. Nothing
    was ever finished where the capacity is 0.

    While they stand still nothing is learnt: what they can is what they could.
    """
    if seen.waiting > terms.exit_seconds * state.capacity and seen.finish_rate < STOPPED * state.capacity:
        return replace(state, stopped=True)
    capacity = _capacity(terms, seen, state)
    if capacity <= 0:
        return State()
    helped = state.held and state.congested_since is not None and now - state.congested_since >= KNOWN_SECONDS
    if helped and _more(seen, max(HELPED * state.capacity, USED_UP * state.reach), state):
        state = replace(state, reach=GROWN_MOST * capacity)
    state = replace(state, stopped=False, young=max(0, YOUNG_LOOKS if state == State() else state.young - 1))
    if seen.waiting / capacity > terms.exit_seconds:
        state = replace(state, shown=state.shown + SHOWING * (seen.finish_rate - state.shown))
    return replace(state, capacity=capacity)


def _more(seen: Seen, than: float, state: State) -> bool:
    """Whether more is finished than consumers could, by more than chance, and ``than`` so much."""
    return seen.finish_rate > max(than, state.capacity + DEVIATIONS * seen.finish_deviation)


def judge(
    terms: Terms,
    wait: float,
    of: Callable[[], Senders],
    state: State,
    now: float,
    *,
    presume: bool = False,
    shown_until: float = -math.inf,
) -> tuple[State, str]:
    """The state after it became known that messages wait ``wait`` seconds at ``now``, and why; ``of`` tells the
    senders, and is not asked while nothing waits.

    With ``presume`` a wait is enough to begin where it is not known yet who sends what. That ends with the look whose
    metrics, which show what came ``shown_until`` then, should tell.
    """
    if state.young or state.stopped:
        why = (
            "consumers stand still: that is nobody's noise" if state.stopped else "what consumers can is not known yet"
        )
        ended = State(state.capacity, state.shown, young=state.young, stopped=state.stopped)
        return ended if state.congested else state, f"messages wait {wait:.2f} s; {why}"
    if not state.congested and wait <= terms.enter_seconds:
        return state, f"messages wait {wait:.2f} s"
    who = of()
    if not state.congested:
        if who.helps:
            state = replace(state, congested_since=now, calm_since=None, asked=who.asked)
            return state, f"messages wait {wait:.2f} s, behind"
        tried = state.unconfirmed_since
        if not presume or (tried is not None and now - tried < NOT_AGAIN_SECONDS):
            return state, f"messages wait {wait:.2f} s, but nobody keeps others waiting who send less"
        state = replace(state, congested_since=now, calm_since=None, presumed_since=now)
        return state, f"messages began to wait, {wait:.2f} s; who sends them is not known yet"
    if state.presumed_since is not None and not who.helps:
        since = state.presumed_since
        if shown_until - since >= SHOWN_SECONDS or now - since >= PRESUMED_SECONDS:
            ended = State(state.capacity, state.shown, unconfirmed_since=now)
            return ended, f"messages wait {wait:.2f} s, but metrics tell of nobody who keeps others waiting"
        return state, f"messages wait {wait:.2f} s; who sends them is not known yet"
    state = _idling(replace(state, asked=who.asked, presumed_since=None), wait, now, who.used_up)
    if who.helps_held and (wait > terms.exit_seconds or who.used_up):
        all_of_it = f", {who.used_up} tenants send all that they may" if who.used_up else ""
        return replace(state, calm_since=None), f"messages wait {wait:.2f} s{all_of_it}"
    calm_since = now if state.calm_since is None else state.calm_since
    if now - calm_since >= terms.calm_seconds:
        return State(state.capacity), f"messages wait {wait:.2f} s, nobody is held back"
    return replace(state, calm_since=calm_since), f"messages wait {wait:.2f} s, calm so far"


def _idling(state: State, wait: float, now: float, used_up: int) -> State:
    """``state`` with how much more is shared out where servers idle for those who are held: ``used_up`` of them send
    all that they may.

    What servers that were added can do shows in no rate that shares hold down, but for a little more each time.
    """
    if wait > NOTHING_SECONDS or not used_up:
        return replace(state, idle_since=None, idle_capacity=0.0, reach=0.0)
    since, base, reach = state.idle_since, state.idle_capacity, state.reach
    if since is None or state.capacity >= USED_UP * reach > base:
        since, base = now, state.capacity
    grown = min(GROWN_MOST, GROWING ** max(0.0, now - since - IDLE_SECONDS))
    return replace(state, idle_since=since, idle_capacity=base, reach=max(reach, grown * base))


def step(
    terms: Terms,
    seen: Seen,
    state: State,
    now: float,
    in_force: Mapping[str, float],
    lately: Mapping[str, float] = MappingProxyType({}),
) -> tuple[State, str]:
    """The state after a look at ``now``, and why; ``in_force`` is what each tenant is entitled to while congested,
    ``lately`` what each sent over a longer while."""
    state = learn(terms, seen, state, now)
    if state.capacity <= 0:
        return state, "nothing was ever finished: consumers are at fault"
    known = state
    return judge(terms, seen.waiting / state.capacity, lambda: senders(seen, known, in_force, lately), state, now)


def entitlements(
    terms: Terms, seen: Seen, state: State, usual: Callable[[str], float], floor: float = 1.0, wait: float | None = None
) -> tuple[dict[str, float], float]:
    """What each tenant that sends is entitled to (messages/s), and what one is that was never seen.

    ``usual`` tells what a tenant used to send, as :meth:`alerts.laws.habits.Habits.usual`; ``wait`` how long messages
    wait, where that is known better than by ``seen``.
    """
    if wait is None:
        wait = seen.waiting / state.capacity if state.capacity > 0 else 0.0
    rates = shares(max(1.0, terms.part(wait)) * state.capacity, seen.arrivals)
    for name, rate in rates.items():
        rates[name] = max(floor, rate, usual(name))
    held, anybody = drained(terms, seen.arrivals, state, usual, floor, wait)
    return rates | held, anybody


def drained(
    terms: Terms,
    arrivals: Mapping[str, float],
    state: State,
    usual: Callable[[str], float],
    floor: float,
    wait: float,
) -> tuple[dict[str, float], float]:
    """What those are entitled to who are held, and one that was never seen.

    What waits is drained at the cost of those who sent too much; all others keep their share of all.
    """
    capacity = terms.part(wait) * max(state.capacity, state.reach)
    held = shares(capacity, arrivals, state.held & arrivals.keys()) if state.held else {}
    found = {name: max(floor, rate, usual(name)) for name, rate in held.items()}
    return found, max(floor, share(capacity, arrivals.values()))


def _capacity(terms: Terms, seen: Seen, state: State) -> float:
    """What consumers can finish: what they do finish while messages wait, and at least that while none does."""
    if state.capacity <= 0:
        return seen.finish_rate
    if state.young:
        return max(state.capacity, seen.finish_rate)
    sure = _more(seen, 0.0, state) and seen.finish_deviation > 0
    if seen.waiting <= terms.exit_seconds * state.capacity:  # they may have idled
        finished = seen.finish_rate if sure else min(seen.finish_rate, terms.probing * state.capacity)
        known = max(state.capacity * (1 - FORGETTING), finished)
        return max(known, state.shown) if state.congested else known
    return seen.finish_rate if sure else state.capacity + SMOOTHING * (seen.finish_rate - state.capacity)
