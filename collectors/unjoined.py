"""What events and samples of one lake do not know of each other: for ``sojourn doctor``.

A queue that stands under one name in events and under another in samples has neither coverage nor tenants beside its
depth, and each of its alerts has two homes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from collectors.receive.sampled import ESTIMATED
from lake.store import Lake

#: How far back is looked, and at how many rows of a table: what is missing is missing in the newest, too.
LOOKED_BACK = timedelta(minutes=10)
_MOST_ROWS = 1_000_000
#: Sources of events that name their broker themselves: applications, by spans or by our client.
_REPORTED = frozenset({"otlp", "client"})
_SHOWN = 3

Queue = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that does not meet: what it is about, what was found, how to have it meet."""

    subject: str
    found: str
    fix: str


@dataclass(slots=True)
class Names:
    """(broker, queue) as events and as samples name them. ``reported``: whether any of its events has a tenant."""

    reported: dict[Queue, bool] = field(default_factory=dict)
    sampled: set[Queue] = field(default_factory=set)


def read_names(lake: Lake, now: datetime) -> Names:
    """The names in the newest rows of ``lake``."""
    names, since = Names(), now - LOOKED_BACK
    for rows in _newest(lake, "message_events", ["broker", "queue", "tenant", "source"], since):
        for row in _distinct(rows):
            if row["source"] in _REPORTED:
                queue = row["broker"], row["queue"]
                names.reported[queue] = names.reported.get(queue, False) or row["tenant"] is not None
    for rows in _newest(lake, "queue_samples", ["broker", "queue", "source"], since):
        # The receiver's own samples hold polls that spans tell of, and what it estimates, under the spans' names.
        names.sampled |= {(row["broker"], row["queue"]) for row in _distinct(rows) if not _ours(row["source"])}
    return names


def mismatches(names: Names, watched: Collection[str]) -> Iterator[Mismatch]:
    """What does not meet, where the brokers ``watched`` are sampled."""
    brokers = {broker for broker, _ in names.sampled}
    strangers: dict[str, list[str]] = {}
    for broker, queue in sorted(names.reported.keys() - names.sampled):
        strangers.setdefault(broker, []).append(queue)
    for broker, queues in strangers.items():
        if not watched:
            fix = f"sample the broker: list it in [[collect.brokers]], with name = {broker!r} or any other"
        elif broker in brokers:
            fix = "give [[collect.receive.joins]] with queue and as_queue, if the broker has another name for it"
        else:
            fix = f"give [[collect.receive.joins]] with system and broker, one of {', '.join(sorted(watched))}"
        yield Mismatch(f"events of {broker}", f"no sample of {_some(queues)}: no coverage, no depth per tenant", fix)
    nameless = sorted(f"{broker}/{queue}" for (broker, queue), told in names.reported.items() if not told)
    if nameless:
        fix = "set the attribute sojourn.tenant on send spans, or in OTEL_RESOURCE_ATTRIBUTES; see docs/otlp.md"
        yield Mismatch("tenants", f"no event of {_some(nameless)} names a tenant: all are 'unknown'", fix)


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _newest(lake: Lake, table: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
    left = _MOST_ROWS
    for rows in lake.scan(table, columns, since) if lake.exists(table) else ():
        yield rows.slice(0, left)
        left -= rows.num_rows
        if left <= 0:
            return


def _ours(source: str | None) -> bool:
    return (source or "").startswith("receiver:") or source == ESTIMATED


def _distinct(rows: pa.RecordBatch) -> Iterable[Mapping[str, Any]]:
    table = pa.Table.from_batches([rows])
    distinct: list[Mapping[str, Any]] = table.group_by(table.column_names).aggregate([]).to_pylist()
    return distinct
