"""Where history that has aged is cut, so that one commit rewrites no more of it than memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_analytics.maintenance.retention import DAY, HOUR, MINUTE

#: Within multiples of so many seconds one commit rewrites what has aged, by the width of the buckets that it becomes.
SPANS = {MINUTE: HOUR, HOUR: DAY}
#: The most rows that one commit makes coarser, unless one bucket alone has more: some 0.5 GB of partials. After a long
#: time without upkeep, or of a busy queue, an hour has tens of millions.
MOST_ROWS = 1 << 21


def slices(seconds: npt.NDArray[Any], width: int, span: int) -> Iterator[tuple[int, int]]:
    """Parts ``[begins, ends)`` of time, in order, that hold all rows, which begin at unix ``seconds``: of whole buckets
    of ``width`` seconds, none across a multiple of ``span`` seconds, none of more than :data:`MOST_ROWS` rows. What is
    of before 1970 goes with its first bucket, as what it is rolled up into may."""
    if len(seconds) == 0:
        return
    ordered = np.sort(seconds)
    buckets = np.maximum(ordered // width, 0)
    firsts = np.flatnonzero(np.diff(buckets, prepend=-1))
    starts, counts = (ordered[firsts] // width * width).tolist(), np.diff(firsts, append=len(ordered)).tolist()
    begins, ends, rows = starts[0], starts[0], 0
    for start, bucket, count in zip(starts, buckets[firsts].tolist(), counts, strict=True):
        if rows and (rows + count > MOST_ROWS or start // span != begins // span):
            yield begins, ends
            begins, rows = start, 0
        ends, rows = (bucket + 1) * width, rows + count
    yield begins, ends
