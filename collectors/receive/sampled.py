"""Spans of traces that were sampled: each stands for as many as its sampler let go, told as counted summaries.

The weight is carried in the tracestate, ``ot=th:…``, the rejection threshold of consistent probability sampling.
Source: OpenTelemetry specification, "TraceState: Probability Sampling" (trace/tracestate-probability-sampling.md). An
event stands for one message, so what is weighted goes to ``event_summaries`` with a source of its own,
:data:`ESTIMATED`: it is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from collectors.receive.rows import COLUMNS, Row
from collectors.records import stamp
from collectors.samples import METRIC_NAMES
from lake.store import conform
from lake.tables import EVENT_TYPES, QUEUE_SAMPLES
from sojourn.client.partial import SECOND, UNKNOWN_TENANT, Partial

#: The source of summaries that stand for sampled spans.
ESTIMATED = "otlp:estimated"
_ESTIMATES_ALONE = "told by the receiver, which counts what it estimates alone"
#: The most that one span may stand for: a tracestate comes from outside.
MOST = 1_000_000
_DIGITS = 14
_WHOLE = 1 << 56
_HEX = frozenset("0123456789abcdef")


class _Event(NamedTuple):
    event_type: str
    attempt: int | None
    enqueued_at: int | None
    occurred_at: int
    processing_seconds: float | None


_PLACES = [COLUMNS.index(name) for name in _Event._fields]
_WHERE = [COLUMNS.index(name) for name in ("broker", "queue", "subscriber", "tenant")]
_OCCURRED_AT = COLUMNS.index("occurred_at")


def weight(tracestate: bytes, trace_id: bytes) -> int:
    """How many messages a span with this tracestate stands for; 1 where it does not tell.

    1 ÷ probability, rounded to one of its neighbours by the trace's id: right on average, and the same for all spans of
    a trace, so that what was enqueued is what ends.
    """
    threshold = _threshold(tracestate)
    if not threshold:
        return 1
    exact = _WHOLE / (_WHOLE - threshold)
    below = int(exact)
    return min(MOST, below + (crc32(trace_id) / 2**32 < exact - below))


def _threshold(tracestate: bytes) -> int:
    """The rejection threshold of 2⁵⁶; 0, nothing rejected, where there is none or it makes no sense."""
    for member in tracestate.decode("ascii", "replace").split(","):
        vendor, _, value = member.strip().partition("=")
        if vendor != "ot":
            continue
        for part in value.split(";"):
            key, _, digits = part.partition(":")
            if key == "th" and 0 < len(digits) <= _DIGITS and _HEX.issuperset(digits):
                return int(digits.ljust(_DIGITS, "0"), 16)
    return 0


def summaries(rows: Iterable[tuple[Row, int]]) -> list[dict[str, Any]]:
    """Rows of ``event_summaries``, by second, queue, subscriber and tenant, for events and their weights."""
    partials: dict[tuple[Any, ...], Partial] = {}
    for row, stands_for in rows:
        one = Partial()
        one.add(_Event(*(row[place] for place in _PLACES)))
        second = row[_OCCURRED_AT] // SECOND * SECOND
        key = (second, *(row[place] for place in _WHERE))
        partials.setdefault(key, Partial()).merge(_times(one, stands_for))
    return [_row(key, partial) for key, partial in partials.items()]


def reported(rows: Iterable[dict[str, Any]], at: int) -> pa.Table:
    """Rows of ``queue_samples`` that say, of each queue and subscriber, how many events of ``rows`` (summaries) are
    estimates, told ``at`` (microseconds)."""
    found: dict[tuple[str, str, str | None], int] = {}
    for row in rows:
        where = row["broker"], row["queue"], row["subscriber"] or None
        found[where] = found.get(where, 0) + sum(row[name] for name in EVENT_TYPES)
    schema = QUEUE_SAMPLES.schema
    columns = {
        name: pa.array([where[place] for where in found], schema.field(name).type)
        for place, name in enumerate(("broker", "queue", "subscriber"))
    }
    columns["sampled_at"] = pa.array([at] * len(found), schema.field("sampled_at").type)
    columns["estimated"] = pa.array(list(found.values()), schema.field("estimated").type)
    unavailable = dict.fromkeys(METRIC_NAMES, _ESTIMATES_ALONE)
    columns["unavailable"] = pa.array([list(unavailable.items())] * len(found), schema.field("unavailable").type)
    return conform(pa.table(columns | stamp(ESTIMATED, len(found))), schema)


def _times(one: Partial, factor: int) -> Partial:
    one.events *= factor
    one.counts = {name: count * factor for name, count in one.counts.items()}
    one.backlog = {second: net * factor for second, net in one.backlog.items()}
    for spread in one.spreads.values():
        spread.count, spread.total, spread.skewed = spread.count * factor, spread.total * factor, spread.skewed * factor
        spread.histogram = {index: count * factor for index, count in spread.histogram.items()}
    return one


def _row(where: tuple[Any, ...], partial: Partial) -> dict[str, Any]:
    second, broker, queue, subscriber, tenant = where
    key = {"broker": broker, "queue": queue, "subscriber": subscriber or "", "tenant": tenant or UNKNOWN_TENANT}
    row = {"bucket_start": second, "bucket_seconds": 1, **key, **partial.row()}
    for name, value in row.items():
        if name.endswith("_histogram") and value is not None:
            row[name] = [{"index": index, "count": count} for index, count in value]
    if row["backlog_cells"] is not None:
        row["backlog_cells"] = [{"second": at, "net": net} for at, net in row["backlog_cells"]]
    return row
