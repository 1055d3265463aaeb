"""Detection and a cap alone, as ``standing`` measures them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.backpressure_parts.standing import measured
from benchmarks.figures import Figure

#: How long the quiet may wait (seconds): eight times what their slowest hundredth does alone.
TARGET_SECONDS = 0.4
CONTROL = f"""\
[[alert.control.policies]]
name = "throttle-noisy"
mode = "auto"
early = true
target_seconds = {TARGET_SECONDS}
cooldown_seconds = 8.0
max_step = 0.9
drain_seconds = 8.0
burst_seconds = 0.25
"""


def measure(scale: float) -> Iterator[Figure]:
    """The shipped rule; the shipped policy in ``auto``, and in a hurry, as one sets it where seconds matter."""
    yield from measured("cap", CONTROL, scale)
