"""Integers that carry a histogram bucket or a backlog cell from Spark's aggregate to the layout of rows.

An array of integers is the cheapest thing that Spark can collect and hand to Arrow; see docs/adr.
"""

from __future__ import annotations

from lake.histogram import BUCKETS_PER_OCTAVE, SMALLEST, ZERO_INDEX
from lake.tables import AGE_KINDS

#: An age's code is ``kind number * AGE_STRIDE + (bucket index − ZERO_INDEX)``. Indices end below 2,800 (2**43 s).
AGE_STRIDE = 8192
KIND_NUMBERS = {kind: number for number, kind in enumerate(AGE_KINDS)}
#: A cell's code is ``second * 2 + (1 if it adds a message, 0 if it takes one)``; this second stands for "unknown".
UNKNOWN_SECOND = -(1 << 40)
#: Java has no exact log2: ln x ÷ ln 2 may land a hair above the integer at a power of two. This much below a bucket's
#: upper bound (relative: 1e-11) counts as the bound itself, so both languages agree wherever a value can tell.
NUDGE = 1e-9


def bucket_index_sql(seconds: str) -> str:
    """Spark SQL for :func:`lake.histogram.bucket_index` of the expression ``seconds``; null stays null."""
    index = f"CAST(ceil(log2({seconds}) * {BUCKETS_PER_OCTAVE}D - {NUDGE!r}D) AS INT) - 1"
    return f"CASE WHEN {seconds} < {SMALLEST!r}D THEN {ZERO_INDEX} WHEN {seconds} IS NOT NULL THEN {index} END"
