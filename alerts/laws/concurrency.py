"""How many messages may be in work at once: by Little's law where service times are known, else by their gradient.

Sources: J. Little, "A proof for the queuing formula L = λW", Operations Research 9(3), 1961. Gradient: Netflix
concurrency-limits ``Gradient2Limit``: L ← 0.8 L + 0.2 (L × g + queue), g = clamp(tolerance × long ÷ short, 0.5, 1). By
itself it drifts: under a lasting overload the long average learns the overload (#134), and where every call takes the
same time-out g is 1 for ever and the limit rises to its maximum (#137). Hence the guard: an absolute latency above
which the limit never rises, and beyond which the long average learns nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: Netflix' published defaults.
LONG_WINDOW, WARM_UP, SMOOTHING, TOLERANCE, QUEUE = 600, 10, 0.2, 1.5, 4.0
#: Where the long average is so many times the short one it is out of date, and let down by a twentieth a window.
OUTDATED, LET_DOWN = 2.0, 0.95


def littles_law(arrival_rate: float, service_seconds: float, headroom: float = 1.0) -> int:
    """L = λW: how many are in work at once where ``arrival_rate`` messages/s take ``service_seconds`` each."""
    if arrival_rate < 0 or service_seconds < 0 or headroom < 1:
        raise ValueError(f"rate {arrival_rate} and time {service_seconds} must be at least 0, headroom {headroom} 1")
    return max(1, math.ceil(arrival_rate * service_seconds * headroom - 1e-9))


@dataclass(frozen=True, slots=True)
class Terms:
    """Bounds of the limit (messages in work) and the guard: a latency (seconds) too long whatever was usual."""

    floor: float = 20.0
    ceiling: float = 200.0
    guard_seconds: float = math.inf

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.ceiling or self.guard_seconds <= 0:
            raise ValueError(
                f"floor {self.floor} and ceiling {self.ceiling} must be 1 ≤ floor ≤ ceiling, the guard above 0"
            )


@dataclass(frozen=True, slots=True)
class State:
    """The limit, the long average of latencies (seconds; 0: none yet), and of how many windows it is."""

    limit: float
    long: float = 0.0
    windows: int = 0


def step(terms: Terms, state: State, latency: float, in_flight: float) -> tuple[State, str]:
    """The state after a window with mean ``latency`` (seconds) and at most ``in_flight`` in work, and why."""
    if latency <= 0 or not math.isfinite(latency):
        return state, "nothing was measured"
    if latency > terms.guard_seconds:
        limit = max(terms.floor, state.limit * max(0.5, terms.guard_seconds / latency))
        why = f"latency {latency:.3g} s is beyond the guard of {terms.guard_seconds:.3g} s"
        return replace(state, limit=limit), why
    windows = min(state.windows + 1, LONG_WINDOW)
    if windows <= WARM_UP:
        long = (state.long * (windows - 1) + latency) / windows
    else:
        long = state.long + (latency - state.long) * 2 / (LONG_WINDOW + 1)
    if long / latency > OUTDATED:
        long *= LET_DOWN
    if in_flight < state.limit / 2:
        return State(state.limit, long, windows), "less than half of the limit is used"
    gradient = min(1.0, max(0.5, TOLERANCE * long / latency))
    wanted = state.limit * gradient + QUEUE
    limit = min(terms.ceiling, max(terms.floor, (1 - SMOOTHING) * state.limit + SMOOTHING * wanted))
    return State(limit, long, windows), f"usually {long:.3g} s, now {latency:.3g} s: gradient {gradient:.2f}"
