"""When to tell a sender to be quiet, so that what it sends until it has heard still has a place.

A sender hears of it ``delay`` D later and sends at most ``rate`` R a second: D × R places must be free when it is told.
It may send again once twice as many are: it is told no more than once each time that D × R messages were worked off.
Source: the stop-start flow control of links (Kung, Morris, "Credit-Based Flow Control for ATM Networks", IEEE Network
9(2), 1995, on the headroom of a round trip).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation


@dataclass(frozen=True, slots=True)
class Terms:
    """``places`` in the buffer; ``delay`` (seconds) from a word to its effect at the sender, ``rate`` in messages/s."""

    places: int
    delay: float
    rate: float

    def __post_init__(self) -> None:
        if self.delay < 0 or self.rate < 0 or self.places <= 2 * self.headroom:
            raise ValueError(
                f"{self.places} places are too few: twice the headroom of {self.headroom} and one are needed"
            )

    @property
    def headroom(self) -> int:
        """D × R: the places that must be free when the sender is told."""
        return math.ceil(self.delay * self.rate - 1e-9)


def step(terms: Terms, squelched: bool, waiting: int) -> tuple[bool, str]:
    """Whether the sender is to be quiet while ``waiting`` messages hold places, given whether it was, and why."""
    free = terms.places - waiting
    if free <= terms.headroom:
        return True, f"{free} places are free, {terms.headroom} are kept for what is under way"
    if squelched and free < 2 * terms.headroom + 1:
        return True, f"{free} places are free, more than {2 * terms.headroom} let the sender go on"
    return False, f"{free} places are free"


@dataclass(frozen=True, slots=True)
class State:
    """Whether the tenant was told to be quiet, and the most that came of the queue's messages before that
    (messages/s)."""

    squelched: bool = False
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Squelch:
    """The law as policies choose it: quiet is the policy's floor, and the limit goes at once where there is room.

    R is what is seen to come into the queue of all tenants, D how long a word takes to have an effect: the metrics'
    delay, a look and the limits API's way. It asks not who is to blame: whom the alert names is quiet.
    """

    says: ClassVar[str] = "quiet, the floor, while fewer than D × R places of a bounded queue are free"
    source: ClassVar[str] = "Kung, Morris 1995"
    fed_by: ClassVar[str] = "`depth` of `queue_health_now`, `backlog` of `tenant_backlog_now`, `enqueued` of `partials`"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "innocent-large": ("innocents are limited",),
            "outage-large": ("innocents are limited",),
            "sybil": ("the quiet wait longer", "innocents are limited"),
        }
    )
    counts: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("depth",)
    signal: ClassVar[str] = ""

    places: float = option("messages that the queue may hold", unit="messages")
    delay_seconds: float = option("D, from what is measured to what is sent less", 5.0, unit="seconds")

    def __post_init__(self) -> None:
        if self.places < 1 or self.delay_seconds < 0:
            raise ValueError(f"places {self.places:g} must be at least 1, delay_seconds {self.delay_seconds:g} 0")

    @property
    def window_seconds(self) -> float:
        """Of no signal of its own."""
        return 0.0

    def begin(self, rate: float, now: float) -> State:
        """Nobody was told anything yet."""
        return State()

    def look(self, agreed: Agreed, state: State, seen: Observation, rate: float, now: float) -> tuple[State, Wish]:
        """Quiet, or as much as the tenant likes."""
        comes = seen.arrival_rate + seen.others_rate
        comes = max(state.rate, comes) if state.squelched else comes
        waiting = math.ceil(max(seen.depth or 0.0, seen.backlog))
        headroom = math.ceil(self.delay_seconds * comes - 1e-9)
        if self.places <= 2 * headroom:
            reason = f"{self.places:g} places are too few: {comes:.4g}/s fill {headroom} before anybody is quiet"
            return State(state.squelched, comes), Wish(None, reason)
        quiet, reason = step(Terms(int(self.places), self.delay_seconds, comes), state.squelched, waiting)
        return State(quiet, comes), Wish(agreed.bounds.floor if quiet else math.inf, reason)

    def sent(self, seen: Observation) -> float:
        """Arrivals: who sends is to obey."""
        return seen.arrival_rate

    def check(self, agreed: Agreed) -> None:
        """D × R places are enough only where the sender is quiet at once."""
        if agreed.bounds.max_step < 1:
            raise ValueError("it is quiet at once, or its places are too few: it needs max_step = 1")
