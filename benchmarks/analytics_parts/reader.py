"""A load for readers: seconds of partials, 10,000 events each over 100,000 (queue, tenant) keys, and lakes of them.

How readers do over them is measured by :mod:`benchmarks.analytics_parts.finished`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.histogram import bucket_index
from lake.schema import BACKLOG_CELLS, HISTOGRAM, TIMESTAMP
from lake.store import Lake, conform
from lake.tables import PARTIALS

KEYS, QUEUES, EVENTS = 100_000, 50, 10_000
_PER_FILE = 30
_BEGIN = 1_760_000_000
NOW_VIEWS = ("tenant_backlog_now", "concurrency_now", "queue_health_now", "attempt_age_now")

Numbers = npt.NDArray[np.int64]


class Load:
    """Arrivals, receipts a second later and completions half a second after that, all keys alike or (``skewed``) few
    with most of them."""

    def __init__(self, keys: int = KEYS, events: int = EVENTS, *, skewed: bool = False) -> None:
        self._rng = np.random.default_rng(7)
        self._keys, self._each, self._skewed = keys, events // 3, skewed
        self._arrived: dict[int, Numbers] = {}
        self._tenants = pa.array([f"tenant-{number:06d}" for number in range(keys)])
        self._queues = pa.array([f"queue-{number:02d}" for number in range(QUEUES)])

    def _arrivals(self, second: int) -> Numbers:
        if second not in self._arrived:
            drawn = self._rng.random(self._each)
            keys = (drawn**6 if self._skewed else drawn) * self._keys
            self._arrived[second] = np.sort(keys.astype(np.int64))
            self._arrived.pop(second - 10, None)
        return self._arrived[second]

    def partials(self, second: int) -> pa.Table:
        """The partials of one second."""
        arrived, received, completed = (self._arrivals(second - delay) for delay in (0, 1, 2))
        keys, of = np.unique(np.concatenate((arrived, received, completed)), return_inverse=True)
        ends = np.cumsum([len(arrived), len(received), len(completed)])
        parts = np.split(of, ends[:-1])
        enqueued, got, done = (np.bincount(part, minlength=len(keys)) for part in parts)
        none = np.zeros(len(keys), np.int64)
        columns = {
            "broker": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(keys), np.int8)), pa.array(["bench"])),
            "queue": self._queues.take(pa.array(keys % QUEUES)),
            "subscriber": pa.array([""] * len(keys)),
            "tenant": self._tenants.take(pa.array(keys)),
            "bucket_start": _times(np.full(len(keys), second)),
            "bucket_seconds": pa.array(np.ones(len(keys), np.int32)),
            "newest_occurred_at": _times(np.full(len(keys), second)),
            **{name: pa.array(none) for name in ("failed", "dead_lettered", "expired", "sidelined", "delayed")},
            **{name: pa.array(none) for name in ("retries", "finished_unreceived", "retry_age_count")},
            "enqueued": pa.array(enqueued),
            "received": pa.array(got),
            "started": pa.array(got),
            "completed": pa.array(done),
            "processing_count": pa.array(done),
            "processing_sum": pa.array(done * 0.5),
            "processing_histogram": _histograms(done, 0.5),
            "first_attempt_age_count": pa.array(got),
            "first_attempt_age_sum": pa.array(got * 1.0),
            "first_attempt_age_max": pa.array(np.where(got > 0, 1.0, 0.0)),
            "first_attempt_age_skewed": pa.array(none),
            "first_attempt_age_histogram": _histograms(got, 1.0),
            "completion_age_count": pa.array(done),
            "completion_age_sum": pa.array(done * 2.0),
            "completion_age_max": pa.array(np.where(done > 0, 2.0, 0.0)),
            "completion_age_skewed": pa.array(none),
            "completion_age_histogram": _histograms(done, 2.0),
            "backlog_cells": _cells(enqueued, done, second),
        }
        return conform(pa.table(columns), PARTIALS.schema)


def _times(seconds: Numbers) -> pa.Array:
    return pa.array(seconds * 1_000_000).cast(pa.timestamp("us")).cast(TIMESTAMP)


def _histograms(counts: Numbers, value: float) -> pa.Array:
    there = counts > 0
    offsets = np.concatenate(([0], np.cumsum(there))).astype(np.int32)
    index = pa.array(np.full(int(there.sum()), bucket_index(value), np.int32))
    cells = pa.StructArray.from_arrays([index, pa.array(counts[there])], fields=list(HISTOGRAM.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), cells).cast(HISTOGRAM)


def _cells(enqueued: Numbers, done: Numbers, second: int) -> pa.Array:
    seconds = np.stack((np.full(len(enqueued), second), np.full(len(done), second - 2)), axis=1)
    nets = np.stack((enqueued, -done), axis=1)
    there = nets != 0
    offsets = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
    cells = pa.StructArray.from_arrays(
        [pa.array(seconds[there]), pa.array(nets[there])], fields=list(BACKLOG_CELLS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), cells).cast(BACKLOG_CELLS)


def fill(lake: Lake, load: Load, seconds: int, begin: int = _BEGIN) -> int:
    """Append ``seconds`` of partials from ``begin`` on, many to a file; the first second that is still to come."""
    for start in range(begin, begin + seconds, _PER_FILE):
        batch = [load.partials(second) for second in range(start, min(start + _PER_FILE, begin + seconds))]
        lake.append("partials", pa.concat_tables(batch))
    return begin + seconds
