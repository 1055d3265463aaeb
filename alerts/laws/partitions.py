"""A concurrency limit of which each kind of traffic is guaranteed a part, and may use what others leave.

Source: Netflix concurrency-limits ``AbstractPartitionedLimiter``: while less than the limit is in work all are
admitted; beyond it, who has less in work than its part.
"""

from __future__ import annotations

import math


def admits(limit: int, in_work: int, of_partition: int, share: float) -> bool:
    """Whether one more of a partition with ``share`` (0 to 1) of ``limit`` is admitted.

    ``in_work`` are in work of all partitions, ``of_partition`` of this one. ValueError for a share that is none. A
    share of 0 is admitted only where there is room, as published: one in work at the least.
    """
    if not 0 <= share <= 1 or limit < 1:
        raise ValueError(f"share {share} must be in [0, 1], limit {limit} at least 1")
    return in_work < limit or of_partition < max(1, math.ceil(limit * share))
