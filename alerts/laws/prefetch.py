"""What a policy makes of :mod:`lake.prefetch`: how many messages a consumer may have in hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, in_hand, option
from alerts.laws.observation import Observation
from lake.prefetch import recommended

#: Work that is told to take less than this (seconds) is not measured.
LEAST_SECONDS = 1e-6


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
