"""Events → rows of the table ``partials``: one for each (queue, subscriber, tenant, second), all of them sums.

Column-wise with NumPy, which takes a fifth of the processor time of the same aggregate in Spark's SQL: docs/adr/0009.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lake.histogram import ZERO_INDEX
from lake.schema import BACKLOG_CELLS, HISTOGRAM, TIMESTAMP
from lake.store import conform
from lake.tables import AGE_KINDS, EVENT_TYPES, FINISHING_TYPES, PARTIALS
from spark_analytics.transforms.events import MICROS, Events, Flags, Floats, bucket_indices
from spark_analytics.transforms.lists import Integers, counts, lists_of, sums

#: Stands for "unknown" where seconds are numbers.
UNKNOWN_SECOND = -(1 << 40)


def partials(events: Events) -> pa.Table:
    """Rows of ``partials`` for ``events``, ordered by their key."""
    groups, size = events.groups, len(events.groups)
    columns: dict[str, pa.Array] = {
        name: values.take(pa.array(key))
        for key, (name, (_, values)) in zip(groups.keys, events.names.items(), strict=False)
    }
    starts = (groups.keys[-1] + events.first_second) * MICROS
    columns["bucket_start"] = pa.array(starts).cast(pa.timestamp("us")).cast(TIMESTAMP)
    columns["bucket_seconds"] = pa.array(np.ones(size, np.int32))
    newest = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(newest, groups.of_row, events.occurred)
    columns["newest_occurred_at"] = pa.array(newest).cast(pa.timestamp("us")).cast(TIMESTAMP)
    columns |= _counts(events)
    for kind in AGE_KINDS:
        columns |= _ages(kind, events)
    columns |= _processing(events)
    columns["backlog_cells"] = _cells(events)
    return conform(pa.table(columns), PARTIALS.schema)


def _counts(events: Events) -> dict[str, pa.Array]:
    """How many events of each type, and of the attempts and ends that views ask for."""
    groups, size, types = events.groups, len(events.groups), len(EVENT_TYPES)
    table = np.bincount(groups.of_row * (types + 1) + events.type_number, minlength=size * (types + 1))
    table = table.reshape(size, types + 1)
    columns = {event_type: table[:, number] for number, event_type in enumerate(EVENT_TYPES)}
    received = events.of_type("received")
    # An attempt that nobody numbered is taken for the first.
    columns["started"] = _counted(events, received & (events.attempt_is(1, 1) | ~events.attempt_known))
    columns["retries"] = _counted(events, received & events.attempt_is(2))
    unreceived = ~events.attempt_known | (events.attempt == 0)
    columns["finished_unreceived"] = _counted(events, events.of_type(*FINISHING_TYPES[1:]) & unreceived)
    return {name: pa.array(numbers) for name, numbers in columns.items()}


def _ages(kind: str, events: Events) -> dict[str, pa.Array]:
    told = np.flatnonzero(events.of_kind[kind] & events.enqueued_known)
    age = events.age[told]
    columns = _measured(f"{kind}_age", events, told, age)
    skewed = np.bincount(events.groups.of_row[told[events.skewed[told]]], minlength=len(events.groups))
    return columns | {f"{kind}_age_skewed": pa.array(skewed)}


def _processing(events: Events) -> dict[str, pa.Array]:
    return _measured("processing", events, *events.processing)


def _measured(name: str, events: Events, rows: Integers, seconds: Floats) -> dict[str, pa.Array]:
    """Count, sum, maximum and histogram of ``seconds``, which ``rows`` tell; sum and maximum of none are null."""
    owners, size = events.groups.of_row[rows], len(events.groups)
    count = np.bincount(owners, minlength=size)
    most = np.zeros(size)
    np.maximum.at(most, owners, seconds)
    none = count == 0
    return {
        f"{name}_count": pa.array(count),
        f"{name}_sum": pa.array(np.bincount(owners, weights=seconds, minlength=size), mask=none),
        f"{name}_max": pa.array(most, mask=none),
        f"{name}_histogram": _histograms(owners, bucket_indices(seconds), size),
    }


def _counted(events: Events, chosen: Flags) -> Integers:
    return np.bincount(events.groups.of_row[chosen], minlength=len(events.groups))


def _histograms(owners: Integers, indices: Integers, rows: int) -> pa.Array:
    owners, indices, number = counts(owners, indices - ZERO_INDEX)
    arrays = [pa.array((indices + ZERO_INDEX).astype(np.int32)), pa.array(number)]
    return lists_of(owners, pa.StructArray.from_arrays(arrays, fields=list(HISTOGRAM.value_type)), rows)


def _cells(events: Events) -> pa.Array:
    """The seconds in which what joined (+) or left (−) the backlog was enqueued; what cancels out is left out."""
    arrived = np.flatnonzero(events.of_type("enqueued"))
    left = np.flatnonzero(events.of_type(*FINISHING_TYPES))
    enqueued = np.where(events.enqueued_known[arrived], events.enqueued[arrived], events.occurred[arrived])
    joined = enqueued // MICROS
    gone = np.where(events.enqueued_known[left], events.enqueued[left] // MICROS, UNKNOWN_SECOND)
    # One sort for both: the lowest bit says which it was.
    owners, codes, number = counts(
        events.groups.of_row[np.concatenate((arrived, left))], np.concatenate((joined * 2 + 1, gone * 2))
    )
    owners, seconds, nets = sums(owners, codes >> 1, number * ((codes & 1) * 2 - 1))
    changed = nets != 0
    owners, seconds, nets = owners[changed], seconds[changed], nets[changed]
    arrays = [pa.array(seconds, mask=seconds == UNKNOWN_SECOND), pa.array(nets)]
    return lists_of(
        owners, pa.StructArray.from_arrays(arrays, fields=list(BACKLOG_CELLS.value_type)), len(events.groups)
    )
