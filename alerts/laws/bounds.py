"""Bounds that every limit keeps, whichever law proposed it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of a limit (messages/s) and the largest part of it that one decision may change.

    ``max_step`` is a fraction of the limit in force: 0.5 lets 100/s become anything from 50/s to 150/s.
    """

    floor: float
    ceiling: float
    max_step: float

    def __post_init__(self) -> None:
        if not 0 < self.floor <= self.ceiling:
            raise ValueError(f"floor {self.floor} and ceiling {self.ceiling} must be 0 < floor ≤ ceiling")
        if not 0 < self.max_step <= 1:
            raise ValueError(f"max_step {self.max_step} must be in (0, 1]")

    def within(self, limit: float) -> float:
        """``limit``, moved into [floor, ceiling]."""
        return min(self.ceiling, max(self.floor, limit))

    def step(self, current: float, wanted: float) -> float:
        """The nearest value to ``wanted`` that one step from ``current`` may reach.

        The range outranks the step: a limit outside of it, as after a change of settings, moves inside at once.
        """
        reach = current * self.max_step
        return self.within(min(current + reach, max(current - reach, wanted)))


@dataclass(frozen=True, slots=True)
class Step:
    """A limit (messages/s) that a law proposes, and why."""

    limit: float
    reason: str
