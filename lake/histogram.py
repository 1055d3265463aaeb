"""Base-2 exponential histograms: OpenTelemetry's, at a fixed scale, merged exactly.

Bucket ``index`` covers the values in ``(BASE**index, BASE**(index + 1)]`` with ``BASE = 2**(2**-SCALE)``.
A quantile read from it is off by at most ``(BASE - 1) / (BASE + 1)``, 0.54 % at scale 6.

Source: OpenTelemetry metrics data model, "ExponentialHistogram".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

SCALE = 6
BUCKETS_PER_OCTAVE = 1 << SCALE
BASE = 2.0 ** (1 / BUCKETS_PER_OCTAVE)
RELATIVE_ERROR = (BASE - 1) / (BASE + 1)

#: Values below a microsecond, the resolution of our timestamps, count as zero and land in this bucket.
SMALLEST = 1e-6
ZERO_INDEX = -2048


def bucket_index(seconds: float) -> int:
    """The index of the bucket that holds ``seconds`` (≥ 0); ``ZERO_INDEX`` below a microsecond."""
    if seconds < SMALLEST:
        return ZERO_INDEX
    return math.ceil(math.log2(seconds) * BUCKETS_PER_OCTAVE) - 1


def bucket_value(index: int) -> float:
    """The value, in seconds, that stands for a bucket: the one with the least relative error."""
    if index <= ZERO_INDEX:
        return 0.0
    return float(2 * BASE ** (index + 1) / (BASE + 1))


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """The ``q``-quantile (nearest rank) in seconds; None for an empty histogram."""
    total = sum(histogram.values())
    if total <= 0:
        return None
    rank = max(1, math.ceil(q * total))
    seen = 0
    for index in sorted(histogram):
        seen += histogram[index]
        if seen >= rank:
            return bucket_value(index)
    raise AssertionError("unreachable: the counts add up to the total")


def merge(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The sum of several histograms, bucket by bucket: exact, whatever the order."""
    merged: dict[int, int] = {}
    for histogram in histograms:
        for index, count in histogram.items():
            merged[index] = merged.get(index, 0) + count
    return merged
