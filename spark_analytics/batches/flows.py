"""The ways from bronze to gold: what is read of a bronze table, and the rows of gold that a batch of it gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from lake.schema import TableSpec
from lake.store import conform
from lake.tables import EVENT_SUMMARIES, EVENT_TYPES, MESSAGE_EVENTS, PARTIALS
from spark_analytics import transforms

#: Rows of gold, by table.
Rows = dict[str, pa.Table]

#: Summaries are rare, and say nothing new within a second.
SUMMARY_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Flow:
    """One way: ``schema`` is read of ``source``, ``compute`` makes rows of it.

    ``writes`` are in the order of their commits: the last shows that a batch is in. ``records_sql`` is SQL over the
    rows of them all, a struct for each table, that adds up to the number of records read.
    """

    name: str
    source: TableSpec
    schema: pa.Schema
    writes: tuple[str, ...]
    compute: Callable[[pa.Table], Rows]
    records_sql: str
    slowest_look: float = 0.0


def _gold(rows: pa.Table) -> Rows:
    events = transforms.Events(rows)
    return {"partials": transforms.partials(events), "marks": transforms.marks(events)}


def _schema(table: TableSpec, columns: Iterable[str], repeating: Collection[str] = ()) -> pa.Schema:
    fields = [table.schema.field(name) for name in columns]
    return pa.schema(
        [
            pa.field(one.name, pa.dictionary(pa.int32(), one.type) if one.name in repeating else one.type)
            for one in fields
        ]
    )


EVENTS = Flow(
    "events",
    MESSAGE_EVENTS,
    _schema(MESSAGE_EVENTS, transforms.EVENT_COLUMNS, repeating={*transforms.KEY, "event_type"}),
    ("marks", "partials"),
    _gold,
    " + ".join(f"partials.{event_type}" for event_type in EVENT_TYPES),
)
SUMMARIES = Flow(
    "summaries",
    EVENT_SUMMARIES,
    _schema(EVENT_SUMMARIES, [name for name in EVENT_SUMMARIES.schema.names if name in PARTIALS.schema.names]),
    ("partials",),
    lambda rows: {"partials": conform(rows, PARTIALS.schema)},
    "1",
    slowest_look=SUMMARY_INTERVAL_SECONDS,
)
#: By name.
FLOWS = {flow.name: flow for flow in (EVENTS, SUMMARIES)}
