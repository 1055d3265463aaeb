"""How many messages a consumer should have fetched ahead: enough that it never waits for the network, and no more.

Source: M. Sackman, "Some queuing theory: throughput, latency and bandwidth", RabbitMQ blog, May 2012. What lies in a
consumer's buffer waits behind all that is before it, and no other consumer can take it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, in_hand, option
from alerts.laws.observation import Observation

#: A recommendation that differs by less is no news.
DEAD_BAND = 0.2
#: Work that is told to take less than this (seconds) is not measured.
LEAST_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Recommendation:
    """How many to prefetch, and why."""

    prefetch: int
    reason: str


def needed(network_seconds: float, processing_seconds: float) -> int:
    """⌈round trip ÷ processing⌉; the round trip is the message's way, its processing, and its acknowledgement's way.

    ``network_seconds`` is of both ways together.
    """
    if network_seconds < 0 or processing_seconds <= 0:
        raise ValueError(f"network {network_seconds} s must be at least 0, processing {processing_seconds} s above")
    # Rounding must not ask for one more: 104 ms ÷ 4 ms are 26, whatever binary fractions make of them.
    return max(1, math.ceil((network_seconds + processing_seconds) / processing_seconds - 1e-9))


def waiting(prefetch: int, network_seconds: float, processing_seconds: float) -> int:
    """How many messages lie in the consumer's buffer before one that arrives, where the queue never runs dry."""
    return max(0, math.floor(prefetch - 1 - network_seconds / processing_seconds + 1e-9))


def recommended(
    current: int, network_seconds: float, processing_seconds: float, *, least: int = 1, most: int = 1000
) -> Recommendation:
    """The prefetch to use instead of ``current``; it stays where the difference is within the dead band."""
    wanted = min(most, max(least, needed(network_seconds, processing_seconds)))
    held = waiting(current, network_seconds, processing_seconds) * processing_seconds
    if least <= current <= most and abs(wanted - current) <= DEAD_BAND * wanted:
        return Recommendation(current, f"{current} is near enough to {wanted}")
    why = (
        f"the buffer holds messages back by {held:.3g} s" if wanted < current else "the consumer waits for the network"
    )
    round_trip = network_seconds + processing_seconds
    return Recommendation(wanted, f"{round_trip:.3g} s round trip ÷ {processing_seconds:.3g} s = {wanted}; {why}")


@dataclass(frozen=True, slots=True)
class Prefetch:
    """The law as policies choose it: floor and ceiling are messages that the tenant's consumer may have in hand.

    It never has a consumer fetch more than the broker lets it now: that is advice, which the journal has. NATS'
    consumers are told by the actuator `nats_max_ack_pending`. Of RabbitMQ's the prefetch is their own: a dry run tells
    what it should be.
    """

    says: ClassVar[str] = "how many messages a consumer may have in hand: a round trip's worth, by what work takes"
    source: ClassVar[str] = "RabbitMQ, May 2012"
    fed_by: ClassVar[str] = (
        "`mean_processing_seconds` and `concurrency_limit` of `concurrency_now`, `prefetch` of `queue_health_now`"
    )
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    counts: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("processing_seconds", "prefetch")
    signal: ClassVar[str] = "work"

    network_seconds: float = option("to the consumer and back, without its work", unit="seconds")

    def __post_init__(self) -> None:
        if not 0 <= self.network_seconds < math.inf:
            raise ValueError(f"network_seconds {self.network_seconds:g} must be at least 0")

    @property
    def window_seconds(self) -> float:
        """The views' own."""
        return 0.0

    def begin(self, rate: float, now: float) -> None:
        """It remembers nothing."""

    def look(self, agreed: Agreed, state: None, seen: Observation, rate: float, now: float) -> tuple[None, Wish]:
        """What is recommended instead of ``rate``, here messages in hand."""
        if (seen.processing_seconds or 0.0) < LEAST_SECONDS:
            return None, Wish(None, "nothing tells what work takes")
        least, most = math.ceil(agreed.bounds.floor), math.floor(agreed.bounds.ceiling)
        found = recommended(
            max(1, round(rate)), self.network_seconds, seen.processing_seconds or 0.0, least=least, most=most
        )
        return None, Wish(float(found.prefetch), found.reason)

    def sent(self, seen: Observation) -> float:
        """What its consumer may have in hand now, by the broker's word."""
        return seen.prefetch or 0.0

    def check(self, agreed: Agreed) -> None:
        """There are no parts of messages."""
        in_hand(agreed)
