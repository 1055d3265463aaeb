"""CoDel as a policy: a tenant is thinned while the queue stands; the law itself is the client's (RFC 8289)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation
from sojourn.client.codel import State, Terms, step

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
        decision = step(self._terms, state.codel, seen.quiet_wait, left, now)
        while decision.drop and count < MOST_DROPS:
            count += 1
            decision = step(self._terms, decision.state, seen.quiet_wait, left, now)
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
