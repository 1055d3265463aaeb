"""When to tell a sender to be quiet, so that what it sends until it has heard still has a place.

A sender hears of it ``delay`` D later and sends at most ``rate`` R a second: D × R places must be free when it is told.
It may send again once twice as many are: it is told no more than once each time that D × R messages were worked off.
Source: the stop-start flow control of links (Kung, Morris, "Credit-Based Flow Control for ATM Networks", IEEE Network
9(2), 1995, on the headroom of a round trip).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


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
