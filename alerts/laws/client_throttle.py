"""Client-side throttling: a client that is refused often refuses by itself, before it loads anybody.

Source: "Site Reliability Engineering" (Beyer, Jones, Petoff, Murphy, 2016), chapter 21, "Handling overload":
p(reject) = max(0, (requests − K × accepts) ÷ (requests + 1)) over the last two minutes, K = 2. A backend then gets
about K requests for each that it accepts, however many there are; a smaller K is stricter, and slower to see that it
recovers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation

WINDOW_SECONDS = 120.0
K = 2.0
#: The window moves in so many pieces.
PIECES = 24


@dataclass(frozen=True, slots=True)
class State:
    """(piece, requests, accepts), the newest last."""

    pieces: tuple[tuple[int, int, int], ...] = ()


def rejection(requests: float, accepts: float, k: float = K) -> float:
    """The probability with which a client rejects its next request by itself."""
    if k < 1:
        raise ValueError(f"K {k} must be at least 1: below, a healthy backend would be starved")
    return max(0.0, (requests - k * accepts) / (requests + 1))


def seen(state: State, accepted: bool, now: float) -> State:
    """``state`` after a request at ``now``; one that the client rejected by itself was not accepted."""
    current = _kept(state, now)
    piece = math.floor(now / (WINDOW_SECONDS / PIECES))
    if current.pieces and current.pieces[-1][0] == piece:
        _, requests, accepts = current.pieces[-1]
        return replace(current, pieces=(*current.pieces[:-1], (piece, requests + 1, accepts + accepted)))
    return replace(current, pieces=(*current.pieces, (piece, 1, int(accepted))))


def decide(state: State, chance: float, now: float, k: float = K) -> tuple[bool, str]:
    """Whether the next request may go, and why; ``chance`` is uniform in [0, 1)."""
    pieces = _kept(state, now).pieces
    requests, accepts = sum(piece[1] for piece in pieces), sum(piece[2] for piece in pieces)
    p = rejection(requests, accepts, k)
    return chance >= p, f"{accepts} of {requests} accepted in {WINDOW_SECONDS:g} s: rejected with probability {p:.3g}"


def _kept(state: State, now: float) -> State:
    oldest = math.floor(now / (WINDOW_SECONDS / PIECES)) - PIECES
    return State(tuple(piece for piece in state.pieces if piece[0] > oldest))


@dataclass(frozen=True, slots=True)
class ClientThrottle:
    """The law as policies choose it: the tenant is the receiver, an attempt that fails is a request that it refused.

    Whoever delivers obeys the limit, and so refuses by itself what the receiver would refuse; what comes into the queue
    waits meanwhile. A receiver that takes one in K of what is sent is left alone.
    """

    says: ClassVar[str] = "no more attempts than K for each that the receiver accepts"
    source: ClassVar[str] = "*Site Reliability Engineering*, 21"
    fed_by: ClassVar[str] = "`completed`, `failed` and `dead_lettered` of `partials`, of the tenant"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    counts: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("attempts", "failures", "attempt_rate")
    signal: ClassVar[str] = "deliveries"

    k: float = option("attempts for each that is accepted", K)
    over_seconds: float = option("over which accepted ones are counted", WINDOW_SECONDS, unit="seconds")
    least: float = option("attempts without which nothing is said", 20.0)

    def __post_init__(self) -> None:
        rejection(0, 0, self.k)
        if not (self.over_seconds > 0 and self.least >= 1):
            raise ValueError("over_seconds must be above 0, least at least 1")

    @property
    def window_seconds(self) -> float:
        """Of the counts."""
        return self.over_seconds

    def begin(self, rate: float, now: float) -> None:
        """It remembers nothing: the counts are the metrics'."""

    def look(self, agreed: Agreed, state: None, seen: Observation, rate: float, now: float) -> tuple[None, Wish]:
        """K × what is accepted of the attempts that are made now."""
        attempts, failures = seen.attempts or 0.0, seen.failures or 0.0
        if attempts < self.least:
            return None, Wish(None, f"{attempts:.0f} attempts ended: too few to say anything")
        accepts = max(0.0, attempts - failures)
        p = rejection(attempts, accepts, self.k)
        wanted = self.k * accepts / attempts * max(rate, seen.attempt_rate or 0.0)
        told = f"{accepts:.0f} of {attempts:.0f} attempts accepted in {self.over_seconds:g} s"
        return None, Wish(max(agreed.bounds.floor, wanted), f"{told}: of more, {p:.0%} would be refused at the source")

    def sent(self, seen: Observation) -> float:
        """Attempts: who delivers is to obey."""
        return seen.attempt_rate or 0.0

    def check(self, agreed: Agreed) -> None:
        """Any bounds do."""
