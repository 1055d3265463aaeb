"""How many messages a consumer should have fetched ahead: enough that it never waits for the network, and no more.

Source: M. Sackman, "Some queuing theory: throughput, latency and bandwidth", RabbitMQ blog, May 2012. What lies in a
consumer's buffer waits behind all that is before it, and no other consumer can take it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: A recommendation that differs by less is no news.
DEAD_BAND = 0.2


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
