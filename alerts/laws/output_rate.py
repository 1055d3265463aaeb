"""How fast to send to a receiver that may be ill: faster by a part of what is left to the maximum while it is well.

Source: allegro/hermes, ``rate-limiting.md``: every 30 s, by the part of sends that failed since: at most 1 %:
r + 0.2 (max − r); at most 5 %: as it is; more: 0.8 r; more than half: slow, one a minute; and while that fails as well,
a heartbeat, one in five minutes, until one gets through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation


class Mode(StrEnum):
    """Normal; slow: one a minute; heartbeat: one in five minutes."""

    NORMAL = "normal"
    SLOW = "slow"
    HEARTBEAT = "heartbeat"


#: Sends a second in the two modes that only try.
TRYING = {Mode.SLOW: 1 / 60, Mode.HEARTBEAT: 1 / 300}


@dataclass(frozen=True, slots=True)
class Terms:
    """Bounds (sends/s), how often is judged (seconds), and Hermes' published parts."""

    most: float
    least: float = 1.0
    every_seconds: float = 30.0
    well: float = 0.01
    tolerable: float = 0.05
    ill: float = 0.5
    speed_up: float = 0.2
    slow_down: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most or self.every_seconds <= 0:
            raise ValueError(f"least {self.least} and most {self.most} must be 0 < least ≤ most")
        if not 0 <= self.well <= self.tolerable <= self.ill <= 1 or not 0 < self.slow_down < 1 or self.speed_up <= 0:
            raise ValueError("parts must be 0 ≤ well ≤ tolerable ≤ ill ≤ 1, slow_down in (0, 1), speed_up above 0")


@dataclass(frozen=True, slots=True)
class State:
    """How fast is sent in the normal mode, in which mode, when was judged last and by what."""

    rate: float
    mode: Mode = Mode.NORMAL
    judged_at: float = float("-inf")
    judgement: str = ""

    @property
    def limit(self) -> float:
        """Sends a second that are allowed now."""
        return TRYING.get(self.mode, self.rate)


def step(terms: Terms, state: State, sent: int, failed: int, now: float) -> tuple[State, str]:
    """The state after ``failed`` of ``sent`` since the last judgement, and why; nothing is judged too early."""
    if not 0 <= failed <= sent:
        raise ValueError(f"{failed} failed of {sent} sent")
    if now - state.judged_at < terms.every_seconds or not sent:
        return state, "nothing to judge by yet"
    part, judged = failed / sent, replace(state, judged_at=now)
    why = f"{part:.0%} of {sent} failed"
    if state.mode is not Mode.NORMAL:
        if failed < sent:
            return replace(judged, rate=terms.least, mode=Mode.NORMAL), f"{why}: it is back, from {terms.least:g}/s"
        return replace(judged, mode=Mode.HEARTBEAT), f"{why}: one in five minutes asks whether it is back"
    if part > terms.ill:
        return replace(judged, mode=Mode.SLOW), f"{why}: one a minute"
    if part > terms.tolerable:
        rate = max(terms.least, terms.slow_down * state.rate)
        return replace(judged, rate=rate), f"{why}: slower, {rate:.4g}/s"
    if part > terms.well:
        return judged, f"{why}: as it is"
    rate = min(terms.most, state.rate + terms.speed_up * (terms.most - state.rate))
    return replace(judged, rate=rate), f"{why}: faster, {rate:.4g}/s"


@dataclass(frozen=True, slots=True)
class OutputRate:
    """The law as policies choose it: floor and ceiling are the bounds, the tenant is the receiver.

    One a minute, or in five, is as far as the policy's floor lets it go. Who delivers obeys the limit; what comes into
    the queue waits meanwhile.
    """

    says: ClassVar[str] = "how fast to deliver to a receiver that may be ill, by the part of attempts that failed"
    source: ClassVar[str] = "Hermes, rate limiting"
    fed_by: ClassVar[str] = "`completed`, `failed` and `dead_lettered` of `partials`, of the tenant"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    counts: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("attempts", "failures", "attempt_rate")
    signal: ClassVar[str] = "deliveries"

    every_seconds: float = option("how often it is judged, by what ended since", 30.0, unit="seconds")
    well: float = option("part of failed attempts up to which it goes faster", 0.01)
    tolerable: float = option("part up to which it stays as it is", 0.05)
    ill: float = option("part beyond which it only tries", 0.5)
    speed_up: float = option("by this part of what is left to the ceiling", 0.2)
    slow_down: float = option("to this part of the rate", 0.8)

    def __post_init__(self) -> None:
        self._terms(1.0, 1.0)

    @property
    def window_seconds(self) -> float:
        """From one judgement to the next."""
        return self.every_seconds

    def begin(self, rate: float, now: float) -> State:
        """Judged at once, by the window before."""
        return State(rate)

    def look(self, agreed: Agreed, state: State, seen: Observation, rate: float, now: float) -> tuple[State, Wish]:
        """One judgement, where it is time for one; else what the last one said."""
        bounds = agreed.bounds
        sent = round(seen.attempts or 0.0)
        if state.mode is Mode.NORMAL and sent and now - state.judged_at >= self.every_seconds:
            state = replace(state, rate=bounds.within(rate))
        failed = min(sent, round(seen.failures or 0.0))
        before = state.judged_at
        state, reason = step(self._terms(bounds.floor, bounds.ceiling), state, sent, failed, now)
        if math.isinf(state.judged_at):
            return state, Wish(None, reason)
        judged = state.judged_at != before
        state = replace(state, judgement=reason) if judged else state
        return state, Wish(state.limit, state.judgement, judged)

    def sent(self, seen: Observation) -> float:
        """Attempts: who delivers is to obey."""
        return seen.attempt_rate or 0.0

    def check(self, agreed: Agreed) -> None:
        """Any bounds do."""

    def _terms(self, least: float, most: float) -> Terms:
        return Terms(
            most,
            least,
            self.every_seconds,
            self.well,
            self.tolerable,
            self.ill,
            self.speed_up,
            self.slow_down,
        )
