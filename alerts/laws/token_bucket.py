"""The token bucket: a rate with a burst.

Source: J. Turner, "New directions in communications", IEEE Communications Magazine 24(10), 1986; RFC 2697 section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Below this many tokens a shortfall is rounding, not a reason to wait.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """``rate`` tokens/s flow in, at most ``burst`` are kept; sending a message takes one."""

    rate: float
    burst: float

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.burst < 1:
            raise ValueError(f"rate {self.rate} must be above 0 and burst {self.burst} at least 1")


class Level(NamedTuple):
    """How many tokens a bucket held at the instant ``at`` (seconds on any clock)."""

    tokens: float
    at: float


class Taken(NamedTuple):
    """Whether a message may go now; if not, in how many seconds at the earliest. ``level`` is the bucket afterwards."""

    allowed: bool
    wait_seconds: float
    level: Level


def full(bucket: TokenBucket, now: float) -> Level:
    """The level of a bucket that nobody has used yet."""
    return Level(bucket.burst, now)


def refill(bucket: TokenBucket, level: Level, now: float) -> Level:
    """The level at ``now``; a clock that went back adds nothing and takes nothing."""
    return take_some(bucket, level, now, 0)[2]


def take(bucket: TokenBucket, level: Level, now: float) -> Taken:
    """Take one token at ``now`` if there is one."""
    count, wait_seconds, left = take_some(bucket, level, now, 1)
    return Taken(count == 1, wait_seconds, left)


def take_some(bucket: TokenBucket, level: Level, now: float, wanted: int) -> tuple[int, float, Level]:
    """Take as many of ``wanted`` tokens as there are at ``now``: how many those are, in how many seconds the next
    comes (0 where none is wanting), and the bucket afterwards.

    Written for speed: the lab takes thousands of tokens a second of processor time.
    """
    tokens, at = level
    if now > at:
        tokens, at = tokens + (now - at) * bucket.rate, now
    if tokens > bucket.burst:
        tokens = bucket.burst
    count = 0
    while count < wanted and tokens >= 1 - ROUNDING:
        tokens, count = (tokens - 1 if tokens > 1 else 0.0), count + 1
    return count, (0.0 if count == wanted else (1 - tokens) / bucket.rate), Level(tokens, at)
