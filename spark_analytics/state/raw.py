"""What the fold has come to as the raw columns of `tenant_state`, `queue_state` and `age_state`, every key numbered."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.now.outcome import Outcome
from lake.now.serve import Served
from lake.tables import TIMESTAMP

Integers = npt.NDArray[np.int64]
_CONCURRENCY = ("window_received", "window_processing_count", "window_processing_sum", "concurrency_limit")


class Numbers:
    """Gives each thing of an epoch the next free number."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], int] = {}
        self._by_broker: dict[str, Integers] = {}
        self._next = 0

    def of_names(self, names: list[tuple[Any, ...]]) -> Integers:
        """The numbers of ``names``."""
        return np.array([self._known.setdefault(name, len(self._known)) for name in names], np.int64)

    def of_keys(self, broker: str, keys: Integers) -> Integers:
        """The numbers of a fold's own ``keys``, which differ."""
        numbers = self._by_broker.get(broker, np.zeros(0, np.int64))
        if (most := int(keys.max(initial=-1))) >= len(numbers):
            numbers = np.concatenate((numbers, np.full(max(1024, most + 1), -1, np.int64)))
        new = keys[numbers[keys] < 0]
        numbers[new] = self._next + np.arange(len(new))
        self._next += len(new)
        self._by_broker[broker] = numbers
        return numbers[keys]


def tenants(outcomes: dict[str, Outcome], queues: pa.Table, numbers: Numbers) -> pa.Table | None:
    """The rows of all tenants, ordered by key; ``queues`` as :func:`queues` has them. None where there are none."""
    tables = []
    for broker, outcome in outcomes.items():
        if not outcome.has_keys:
            continue
        backlog, attempts = outcome.tenants(), outcome.concurrency()
        for name in _CONCURRENCY:
            backlog = backlog.append_column(name, attempts.column(name))
        backlog = backlog.append_column("processing_bucket", attempts.column("bucket"))
        tables.append(backlog.append_column("key", pa.array(numbers.of_keys(broker, outcome.keys))))
    if not tables:
        return None
    rows = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    rows = rows.append_column("queue_key", _queue_keys(rows, queues))
    rows = _ordered(rows)
    return rows.rename_columns(["now_us" if name == "as_of_us" else name for name in rows.column_names])


def queues(served: Served, numbers: Numbers) -> pa.Table | None:
    """The rows of all queues and consumers, ordered by key. None where there are none."""
    rows = served.table("stage_queues_now")
    if rows is None or rows.num_rows == 0:
        return None
    keys = numbers.of_names(list(zip(*(rows.column(name).to_pylist() for name in _NAMES), strict=True)))
    renamed = {
        "as_of_us": "now_us",
        "in_flight": "events_in_flight",
        "window_dead_lettered": "dead_lettered",
        "broker_delayed": "delayed",
    }
    rows = rows.rename_columns([renamed.get(name, name) for name in rows.column_names])
    since = rows.column("mode_since_us").cast(pa.timestamp("us")).cast(TIMESTAMP)
    rows = rows.append_column("mode_since", since).append_column("key", pa.array(keys))
    newest = served.table("stage_newest")
    assert newest is not None
    for ours, theirs in (("newest_event_at", "as_of"), ("newest_sample_at", "sampled_at")):
        told = dict(zip(newest.column("broker").to_pylist(), newest.column(theirs).to_pylist(), strict=True))
        brokers = [told.get(broker) for broker in rows.column("broker").to_pylist()]
        rows = rows.append_column(ours, pa.array(brokers, TIMESTAMP))
    whole = pa.schema([_whole(field) for field in rows.schema])
    return _ordered(rows.cast(whole))


def ages(served: Served, numbers: Numbers) -> pa.Table | None:
    """The newest ages of each kind of each key, ordered by key. None where history alone tells them."""
    rows = served.table("stage_age_rows_now")
    if rows is None:
        return None
    rows = rows.rename_columns(["count" if name == "n" else name for name in rows.column_names])
    starts = pc.multiply(rows.column("start_second"), 1_000_000).cast(pa.timestamp("us")).cast(TIMESTAMP)
    rows = rows.append_column("bucket_start", starts)
    return _ordered(rows.append_column("key", pa.array(numbers.of_keys("", rows.column("slot").to_numpy()))))


_NAMES = ("broker", "queue", "subscriber")


def _whole(field: pa.Field) -> pa.Field:
    """A sum of whole numbers, which a query engine makes wider than any of them, as what tables hold."""
    return pa.field(field.name, pa.int64()) if pa.types.is_decimal(field.type) else field


def _by_name(queues: pa.Table, column: str) -> dict[tuple[str, str, str], Any]:
    names = zip(*(queues.column(name).to_pylist() for name in _NAMES), strict=True)
    return dict(zip(names, queues.column(column).to_pylist(), strict=True))


def _queue_keys(rows: pa.Table, queues: pa.Table) -> pa.Array:
    """The key of each row's queue: names are compared as the few numbers that dictionaries have for them."""
    keys = _by_name(queues, "key")
    code = np.zeros(rows.num_rows, np.int64)
    dictionaries = []
    for name in _NAMES:
        column = rows.column(name).combine_chunks()
        column = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
        code = code * max(1, len(column.dictionary)) + column.indices.to_numpy(zero_copy_only=False)
        dictionaries.append(column)
    _, first, of_row = np.unique(code, return_index=True, return_inverse=True)
    names = zip(*(column.take(pa.array(first)).to_pylist() for column in dictionaries), strict=True)
    return pa.array(np.array([keys[name] for name in names], np.int64)[of_row])


def _ordered(rows: pa.Table) -> pa.Table:
    keys = rows.column("key").to_numpy()
    if len(keys) < 2 or bool(np.all(keys[1:] > keys[:-1])):
        return rows
    return rows.take(pc.sort_indices(rows.column("key")))
