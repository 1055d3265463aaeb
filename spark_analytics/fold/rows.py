"""Columns of outcomes as rows of finished state, named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spark_analytics.fold.arrays import Array
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.modes import MODE_NAMES
from spark_analytics.fold.outcome import Columns

#: Which columns are no whole numbers.
_FRACTIONS = frozenset(
    {
        "visibility_timeout_seconds", "sample_staleness_seconds", "told_age_seconds", "oldest_age_seconds",
        "quiet_oldest_age_seconds", "window_enqueued", "window_finished", "window_received", "window_retries",
        "window_processing_sum", "coverage", "transactional_age_seconds",
    }
)  # fmt: skip


def tenant_rows(broker: str, fold: Fold, keys: Array, columns: Columns) -> pa.Table:
    """``columns`` as :attr:`Outcome.tenant_columns` has them, of one or more instants, with the names of ``keys``."""
    names = _names(broker, fold, fold.state.consumer_of[keys])
    tenant = fold.state.tenant_names().take(pa.array(keys))
    return pa.table({**names, "tenant": tenant, **{name: _array(name, values) for name, values in columns.items()}})


def queue_rows(broker: str, fold: Fold, places: Array, columns: Columns) -> pa.Table:
    """``columns`` as :attr:`Outcome.queue_columns` has them, of one or more instants, with the names of ``places``."""
    words = fold.readings.words
    arrays: dict[str, Any] = {name: _array(name, values) for name, values in columns.items()}
    arrays |= {name: words.column(columns[name]) for name in ("status", "dead_letter_for")}
    told = ~np.isnan(columns["sampled_us"])
    arrays["dead_letters"] = pa.array(columns["dead_letter_for"] > 0, mask=~told)
    arrays["mode"] = pa.array([MODE_NAMES[number] or None for number in columns["mode"].tolist()], pa.string())
    return pa.table(_names(broker, fold, places) | arrays)


def _names(broker: str, fold: Fold, consumers: Array) -> dict[str, pa.Array]:
    """Broker, queue and subscriber as dictionaries."""
    of_row = pa.array(consumers.astype(np.int32))
    queues, subscribers = ([name[place] for name in fold.state.consumers] for place in (0, 1))
    return {
        "broker": pa.DictionaryArray.from_arrays(np.zeros(len(consumers), np.int8), pa.array([broker], pa.string())),
        "queue": pa.DictionaryArray.from_arrays(of_row, pa.array(queues, pa.string())),
        "subscriber": pa.DictionaryArray.from_arrays(of_row, pa.array(subscribers, pa.string())),
    }


def _array(name: str, values: Array) -> pa.Array:
    if values.dtype.kind != "f":
        return pa.array(values)
    unknown = np.isnan(values)
    if name in _FRACTIONS:
        return pa.array(values, mask=unknown)
    return pa.array(np.where(unknown, 0, values).astype(np.int64), mask=unknown)
