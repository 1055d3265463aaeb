"""What each tenant may send whatever the others do, and when that binds: only while its queue is congested.

A limit that follows an alert comes a pipeline's delay late. What a tenant is entitled to is known before: the client
has it all the time, and all that must travel when a queue gets behind is one bit with a lease.

* A tenant is entitled to its max-min share: what one that asks for everything gets beside the others as they are
  (Bertsekas, Gallager, "Data Networks", 6.5.2) – and never to less than the 99th percentile of its own past, learnt
  while nobody was held back. Doing what it always did, no tenant is limited.
* A queue is congested once its messages are expected to wait longer than ``enter_seconds``, by Little's law, waiting ÷
  throughput; until they wait less than ``exit_seconds`` *and* nobody has used up what it is entitled to for
  ``calm_seconds``. Were the bit to end with the queue, a flood would come back in waves.
* It protects somebody, or does not bind: somebody sends more than its share while another keeps clearly within its own.
  Where all alike send too much, or all that waits came before, shares would make some wait longer than others.
* It conserves work: while the wait is short and somebody is held back, shares are of more than the throughput seen, so
  that they grow until messages wait again; while it is long, of less, so that the backlog drains.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

from alerts.laws.costs import Costs
from sojourn.client.groups import grouped

#: So often a queue is looked at (seconds): what counts by looks below is meant for that.
LOOK_SECONDS = 0.5
#: The relative width of the classes in which a tenant's past is counted, and how fast it is forgotten.
CLASS_WIDTH, FORGOTTEN = 1.05, 0.99975
#: Who sends this part of what it is entitled to may be held back.
USED_UP = 0.9
#: Who sends at most this part of what those beyond their shares send on average keeps within its own, by more than
#: chance.
WITHIN = 0.4
#: Who sends less than this part of what it may is no longer held back.
LET_GO = 0.5
#: How much of the throughput seen at one look is believed; a higher one is believed while nothing waits, and 0.25 % of
#: what was once seen forgotten.
SMOOTHING, FORGETTING = 0.2, 0.005
#: The same of what was shown while messages wait, to which shares return once servers idle for them.
SHOWING = 0.3
#: Looks after which a tenant's past counts: before, its 99th percentile would be its highest rate.
LEARNT_AFTER = 600
#: Looks that must stay calm before one is learnt from: a flood must not become its own entitlement.
LEARNT_LATE = 20


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


def in_work(
    waiting: Mapping[str, float],
    finished: Mapping[str, float],
    arrivals: Mapping[str, float],
    costs: Costs,
    units: Mapping[str, str] = MappingProxyType({}),
) -> Seen:
    """A queue as its tenants have it (messages, messages a second), counted in seconds of work; what comes by tenant,
    or by the unit that ``units`` says it is of."""
    return Seen(
        sum(count * costs.of(name) for name, count in waiting.items()),
        sum(rate * costs.of(name) for name, rate in finished.items()),
        grouped({name: rate * costs.of(name) for name, rate in arrivals.items()}, units),
    )


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of a queue: the throughput that is shared out, and what was shown while messages waited; since
    when it is congested, and calm."""

    capacity: float = 0.0
    shown: float = 0.0
    congested_since: float | None = None
    calm_since: float | None = None
    #: Who sent more than its share, and sends all that it may since.
    held: frozenset[str] = frozenset()

    @property
    def congested(self) -> bool:
        """Whether entitlements bind."""
        return self.congested_since is not None


class Past:
    """How much a tenant used to send: its rates in classes of relative width, the older the lighter."""

    __slots__ = ("_classes", "_weight", "looks")

    def __init__(self) -> None:
        self._classes: dict[int, float] = {}
        self._weight = 1.0  # of the next rate: growing weights forget without touching what is there
        self.looks = 0

    def add(self, rate: float) -> None:
        """Count one look at which it sent ``rate``/s."""
        self.looks += 1
        if rate > 0:
            number = math.ceil(math.log(rate, CLASS_WIDTH))
            self._classes[number] = self._classes.get(number, 0.0) + self._weight
        self._weight /= FORGOTTEN
        if self._weight > 1e12:
            self._classes = {number: weight / self._weight for number, weight in self._classes.items()}
            self._weight = 1.0

    def quantile(self, q: float) -> float:
        """The rate that it kept to at ``q`` of the looks at which it sent at all, at most 5 % too high."""
        left = sum(self._classes.values()) * (1 - q)
        for number in sorted(self._classes, reverse=True):
            left -= self._classes[number]
            if left < 0:
                return CLASS_WIDTH**number
        return 0.0


class Habits:
    """What tenants of one queue used to send while nobody was held back."""

    def __init__(self) -> None:
        self._tenants: dict[str, Past] = {}
        self._looks: deque[Mapping[str, float]] = deque()

    def look(self, arrivals: Mapping[str, float], *, congested: bool) -> None:
        """Count one look; what came shortly before a congestion may have brought it about, and is forgotten."""
        if congested:
            self._looks.clear()
            return
        self._looks.append(arrivals)
        if len(self._looks) > LEARNT_LATE:
            for name, rate in self._looks.popleft().items():
                self._tenants.setdefault(name, Past()).add(rate)

    def usual(self, tenant: str) -> float:
        """The 99th percentile of what ``tenant`` sent (messages/s); 0 where too little is known of it."""
        past = self._tenants.get(tenant)
        return past.quantile(0.99) if past is not None and past.looks >= LEARNT_AFTER else 0.0


def share(capacity: float, others: Iterable[float]) -> float:
    """What one that asks for everything gets of ``capacity`` beside the demands of ``others``, by max-min fairness."""
    demands = sorted(others)
    left, sharing = capacity, len(demands) + 1
    for demand in demands:
        if demand > left / sharing:
            break
        left -= demand
        sharing -= 1
    return max(0.0, left / sharing)


def shares(capacity: float, demands: Mapping[str, float]) -> dict[str, float]:
    """For each of ``demands``: its :func:`share` beside all the others, in n log n steps."""
    ordered = sorted(demands.values())
    below = [0.0, *accumulate(ordered)]  # below[k]: what the k smallest ask for together
    count = len(ordered)

    def level(demand: float) -> float:
        # The least k whose next demand is not met; of a share above its own demand, that is met by itself.
        low, high = 0, count
        while low < high:
            k = (low + high) // 2
            at = ordered[k]
            taken = below[k] + (count - k) * at + (at - demand if demand < at else 0.0)
            if taken >= capacity:
                high = k
            else:
                low = k + 1
        if low > 0 and demand <= ordered[low - 1]:
            return (capacity - below[low] + demand) / (count - low + 1)
        return (capacity - below[low]) / max(1, count - low)

    return {name: max(0.0, level(demand)) for name, demand in demands.items()}


def beyond(capacity: float, demands: Mapping[str, float]) -> frozenset[str]:
    """Who asks for more than its share of ``capacity``."""
    found = shares(capacity, demands)
    return frozenset(name for name, rate in demands.items() if rate > found[name])


def protects(capacity: float, held: frozenset[str], demands: Mapping[str, float]) -> bool:
    """Whether somebody keeps clearly within its share, whom it helps that those ``held`` keep to theirs."""
    if not held:
        return False
    found = shares(capacity, demands)
    mean = sum(max(demands.get(name, 0.0), found.get(name, 0.0)) for name in held) / len(held)
    return any(0 < rate <= WITHIN * mean for name, rate in demands.items() if name not in held)


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
    capacity = _capacity(terms, seen, state)
    if capacity <= 0:
        return State(), "nothing was ever finished: consumers are at fault"
    wait = seen.waiting / capacity
    if wait > terms.exit_seconds:
        state = replace(state, shown=state.shown + SHOWING * (seen.finish_rate - state.shown))
    state = replace(state, capacity=capacity)
    if not state.congested and wait <= terms.enter_seconds:
        return state, f"messages wait {wait:.2f} s"
    demands = {name: max(seen.arrivals.get(name, 0.0), lately.get(name, 0.0)) for name in {*seen.arrivals, *lately}}
    those = beyond(capacity, seen.arrivals)
    if not state.congested:
        if not protects(capacity, those, demands):
            return state, f"messages wait {wait:.2f} s, but nobody keeps others waiting who send less"
        return replace(state, congested_since=now, calm_since=None, held=those), f"messages wait {wait:.2f} s, behind"
    may = {name: in_force.get(name, math.inf) for name in seen.arrivals}
    stay = {name for name in state.held if seen.arrivals.get(name, 0.0) >= LET_GO * may.get(name, 0.0)}
    state = replace(state, held=those | stay)
    used_up = [name for name in state.held if seen.arrivals.get(name, 0.0) >= USED_UP * may.get(name, math.inf)]
    if protects(capacity, state.held, demands) and (wait > terms.exit_seconds or used_up):
        who = f", {len(used_up)} tenants send all that they may" if used_up else ""
        return replace(state, calm_since=None), f"messages wait {wait:.2f} s{who}"
    calm_since = now if state.calm_since is None else state.calm_since
    if now - calm_since >= terms.calm_seconds:
        return State(capacity), f"messages wait {wait:.2f} s, nobody is held back"
    return replace(state, calm_since=calm_since), f"messages wait {wait:.2f} s, calm so far"


def entitlements(
    terms: Terms, seen: Seen, state: State, usual: Callable[[str], float], floor: float = 1.0
) -> tuple[dict[str, float], float]:
    """What each tenant that sends is entitled to (messages/s), and what one is that was never seen.

    ``usual`` tells what a tenant used to send, as :meth:`Habits.usual`.
    """
    wait = seen.waiting / state.capacity if state.capacity > 0 else 0.0
    part = terms.part(wait)
    # What waits is drained at the cost of those who sent too much; all others keep their share of all.
    rates = shares(max(1.0, part) * state.capacity, seen.arrivals)
    drained = shares(part * state.capacity, seen.arrivals) if state.held else {}
    for name, rate in rates.items():
        rates[name] = max(floor, drained[name] if name in state.held else rate, usual(name))
    return rates, max(floor, share(part * state.capacity, seen.arrivals.values()))


def _capacity(terms: Terms, seen: Seen, state: State) -> float:
    """What consumers can finish: what they do finish while messages wait, and at least that while none does."""
    if state.capacity <= 0:
        return seen.finish_rate
    if seen.waiting <= terms.exit_seconds * state.capacity:  # they may have idled
        known = max(state.capacity * (1 - FORGETTING), min(seen.finish_rate, terms.probing * state.capacity))
        return max(known, state.shown) if state.congested else known
    return state.capacity + SMOOTHING * (seen.finish_rate - state.capacity)
