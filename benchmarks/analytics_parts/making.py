"""Events as collectors write them: lives of messages at a steady rate, over queues and tenants."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.schema import TIMESTAMP

QUEUES = 20
#: What one message tells: its arrival, its receipt, its end.
LIFE = ("enqueued", "received", "completed")

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


def lives(messages: int, *, begins: float, rate: float, tenants: int, seed: int = 1) -> pa.Table:
    """The events of ``messages`` lives at ``rate`` events a second from the unix time ``begins``, in their order.

    Tenants are Zipf-distributed: few have most messages, as in shared queues.
    """
    rng = np.random.default_rng(seed)
    enqueued = begins + np.arange(messages) / (rate / len(LIFE))
    received = enqueued + rng.lognormal(-2, 1.2, messages)
    took = rng.lognormal(-3, 0.8, messages)
    at = np.concatenate([enqueued, received, received + took])
    order = np.argsort(at, kind="stable")
    number = np.tile(np.arange(messages), len(LIFE))[order]
    tenant = (rng.zipf(1.3, messages) % tenants)[number]
    kind = np.repeat(np.arange(len(LIFE)), messages)[order]
    return events(kind, number, tenant, enqueued[number], at[order], took[number])


def events(kind: Numbers, number: Numbers, tenant: Numbers, enqueued: Seconds, at: Seconds, took: Seconds) -> pa.Table:
    """Rows of message_events: ``kind`` is a place in LIFE, times are unix seconds."""
    rows = len(kind)
    kinds = pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int8)), pa.array(LIFE)).cast(pa.string())
    times = _instants(at)
    return pa.table(
        {
            "event_id": pc.binary_join_element_wise(kinds, _text(number), "-"),
            "event_type": kinds,
            "broker": pa.repeat("bench", rows),
            "queue": pc.binary_join_element_wise("queue", _text(tenant % QUEUES), "-"),
            "tenant": pc.binary_join_element_wise("tenant", _text(tenant), "-"),
            "message_id": pc.binary_join_element_wise("message", _text(number), "-"),
            "attempt": pa.array(np.ones(rows, np.int32), mask=kind == 0),
            "enqueued_at": _instants(enqueued),
            "occurred_at": times,
            "processing_seconds": pa.array(took, mask=kind != LIFE.index("completed")),
            "clock": pa.repeat("broker", rows),
            "source": pa.repeat("bench", rows),
            "ingested_at": times,
            "ingest_date": pa.repeat(datetime.now(UTC).date(), rows),
        }
    )


def _text(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _instants(seconds: Seconds) -> pa.Array:
    return pa.array((seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us")).cast(TIMESTAMP)
