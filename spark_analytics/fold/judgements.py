"""What judgements with memory have come to: who is noisy, and since when each queue is in its mode.

Both depend on every instant of the past, and are judged at each as it was then. What was judged by the second stays so
when partials are rolled up; who folds them anew has the ends of minutes and hours for instants.
"""

from __future__ import annotations

import numpy as np

from spark_analytics.fold.arrays import Array, padded


class Judgements:
    """By key the last verdict; by consumer the last mode (0: it had no instant yet), and since when, in µs."""

    def __init__(self) -> None:
        self.verdicts = np.zeros(0, np.int8)
        self.modes = np.zeros(0, np.int8)
        self.since_us = np.zeros(0, np.int64)

    def grow(self, keys: int, consumers: int) -> None:
        """Make room for so many keys and consumers."""
        self.verdicts = padded(self.verdicts, keys)
        self.modes, self.since_us = padded(self.modes, consumers), padded(self.since_us, consumers)

    def turn(self, consumers: Array, modes: Array, as_of_us: int) -> tuple[Array, Array]:
        """The consumers' ``modes`` at one instant; what was there before, for :meth:`turn_back`."""
        before = self.modes[consumers], self.since_us[consumers]
        self.since_us[consumers] = np.where(before[0] != modes, as_of_us, before[1])
        self.modes[consumers] = modes
        return before

    def turn_back(self, consumers: Array, before: tuple[Array, Array]) -> None:
        """Undo :meth:`turn`."""
        self.modes[consumers], self.since_us[consumers] = before
