"""CoDel for consumers: what to put aside so that the wait, and not the length, of a queue stays near a target.

Source: RFC 8289 (Nichols, Jacobson, McGregor, Iyengar, 2018), sections 3 and 5, with its resumption of the drop rate.
For packets target and interval are 5 and 100 ms; for messages take them from the workload: the target is the wait
that is harmless, the interval about as long as producers take to react.

A burst that drains within an interval is left alone; a queue that stands is thinned ever faster, as 1 ÷ √count, until
it does not stand: n seconds on, n ÷ (2 × interval²) a second go. What "drop" is, the caller decides: requeue with a
delay, sideline, dead-letter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation

#: A drop rate is resumed where the last spell ended less than this many intervals ago.
RESUMED_WITHIN = 16


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds."""

    target: float = 0.005
    interval: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.target < self.interval < math.inf:
            raise ValueError(f"target {self.target} must be above 0 and below the interval {self.interval}")


@dataclass(frozen=True, slots=True)
class State:
    """``above_until``: when the wait will have been above target for an interval (None: it is not above)."""

    above_until: float | None = None
    dropping: bool = False
    next_drop: float = 0.0
    count: int = 0
    last_count: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to drop the message that was just taken, and why."""

    drop: bool
    state: State
    reason: str


def step(terms: Terms, state: State, waited: float, left: int, now: float) -> Decision:
    """What to do with a message that waited ``waited`` seconds; ``left`` others wait behind it.

    After a drop call again for the next message, at the same ``now``.
    """
    if waited < terms.target or left < 1:
        return Decision(False, replace(state, above_until=None, dropping=False), f"waited {waited:.3g} s: harmless")
    if state.above_until is None:
        waiting = replace(state, above_until=now + terms.interval, dropping=False)
        return Decision(False, waiting, f"waited {waited:.3g} s: above target since now")
    if now < state.above_until:
        return Decision(False, replace(state, dropping=False), f"waited {waited:.3g} s: above target, not for long yet")
    if not state.dropping:
        since = state.count - state.last_count
        recent = now - state.next_drop < RESUMED_WITHIN * terms.interval
        count = since if recent and since > 1 else 1
        begun = replace(state, dropping=True, count=count, last_count=count, next_drop=after(terms, now, count))
        return Decision(True, begun, f"waited {waited:.3g} s, above target for {terms.interval:g} s")
    if now < state.next_drop:
        return Decision(False, state, f"the next goes in {state.next_drop - now:.3g} s")
    count = state.count + 1
    going = replace(state, count=count, next_drop=after(terms, state.next_drop, count))
    return Decision(True, going, f"waited {waited:.3g} s, still above target: number {count}")


def after(terms: Terms, instant: float, count: int) -> float:
    """The control law: when the drop after the ``count``-th comes, which came at ``instant``."""
    return instant + terms.interval / math.sqrt(count)


#: No look drops more messages than this.
MOST_DROPS = 100_000


@dataclass(frozen=True, slots=True)
class Paced:
    """The law's state, what the tenant sent before it was limited (messages/s), and when was looked last."""

    codel: State
    sends: float
    at: float


@dataclass(frozen=True, slots=True)
class CoDel:
    """The law as policies choose it: the limit is what the tenant sent, less what CoDel would drop of it.

    The wait is that of the oldest message of quiet tenants: where messages are taken in their order it is the head's,
    and what the limit holds back is in no queue. With a spillover as the actuator the rest waits aside; nothing is
    dropped. It is looked at once a second: intervals below that are no quicker. It asks not who is to blame: whom the
    alert names is thinned. Made for senders that answer each drop, it is slow against a flood that does not.
    """

    says: ClassVar[str] = "thins a tenant ever faster, as √count, while a queue stands above a target wait"
    source: ClassVar[str] = "RFC 8289"
    fed_by: ClassVar[str] = "`oldest_age_seconds` of quiet tenants and `ready` in `tenant_backlog_now`"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "innocent-large": ("the quiet wait longer", "innocents are limited"),
            "outage-large": ("innocents are limited",),
            "sybil": ("the quiet wait longer", "innocents are limited"),
        }
    )
    counts: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("ready",)
    signal: ClassVar[str] = ""

    target_seconds: float = option("wait that is harmless", 0.5, unit="seconds")
    interval_seconds: float = option("a queue above target for so long stands", 1.0, unit="seconds")

    def __post_init__(self) -> None:
        self._terms  # noqa: B018 - it is what checks them

    @property
    def _terms(self) -> Terms:
        return Terms(self.target_seconds, self.interval_seconds)

    @property
    def window_seconds(self) -> float:
        """Of no signal of its own."""
        return 0.0

    def begin(self, rate: float, now: float) -> Paced:
        """Nothing stands yet."""
        return Paced(State(), rate, now)

    def look(self, agreed: Agreed, state: Paced, seen: Observation, rate: float, now: float) -> tuple[Paced, Wish]:
        """What may come while so many of the tenant's messages as are due by now are not let in."""
        sends = state.sends if state.codel.dropping else max(rate, seen.arrival_rate)
        left, count = math.ceil(seen.ready or 0.0), 0
        decision = step(self._terms, state.codel, seen.quiet_age_seconds, left, now)
        while decision.drop and count < MOST_DROPS:
            count += 1
            decision = step(self._terms, decision.state, seen.quiet_age_seconds, left, now)
        after_look = Paced(decision.state, sends, now)
        if not decision.state.dropping:
            return after_look, Wish(max(sends, agreed.bounds.ceiling), decision.reason)
        pace = math.sqrt(decision.state.count) / self.interval_seconds
        reason = f"{decision.reason}; {pace:.3g}/s of {sends:.4g}/s are too much by now"
        return after_look, Wish(max(agreed.bounds.floor, sends - pace), reason)

    def sent(self, seen: Observation) -> float:
        """Arrivals: who sends is to obey."""
        return seen.arrival_rate

    def check(self, agreed: Agreed) -> None:
        """Any bounds do."""
