"""Events → rows of the table ``marks``: the few that views must see one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lake.store import conform
from lake.tables import MARKS
from spark_analytics.transforms.events import KEY, Events, Flags, bucket_indices


def marks(events: Events) -> pa.Table:
    """Failures, retries, delays, endings that are no plain first completion, first attempts of named subscribers."""
    chosen = np.flatnonzero(_remembered(events))
    rows = events.rows.select(["message_id", "event_type", "attempt", "occurred_at"]).take(pa.array(chosen))
    columns = {name: rows.column(name) for name in rows.column_names}
    for name in KEY:
        codes, values = events.names[name]
        columns[name] = values.take(pa.array(codes.numbers[chosen]))
    unaged = ~(events.of_type("received") & events.enqueued_known)[chosen]
    age = events.age[chosen]
    columns["age_seconds"] = pa.array(age, mask=unaged)
    columns["age_index"] = pa.array(bucket_indices(age).astype(np.int32), mask=unaged)
    columns["age_skewed"] = pa.array(events.skewed[chosen], mask=unaged)
    return conform(pa.table(columns), MARKS.schema)


def _remembered(events: Events) -> Flags:
    codes, names = events.names["subscriber"]
    named = np.array([name != "" for name in names.to_pylist()] or [False])[codes.numbers]
    remembered: Flags = (
        events.of_type("failed", "delayed", "dead_lettered", "expired", "sidelined")
        | events.of_type("received") & (events.attempt_is(2) | events.attempt_is(1, 1) & named)
        | events.of_type("completed") & (events.attempt_is(2) | ~events.attempt_known)
    )
    return remembered
