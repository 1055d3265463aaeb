"""What a tap must remember of unfinished messages, found again in the lake after a restart.

One Delta snapshot gives both how far the tap was read and, as the events of that very snapshot, which messages were
unfinished then and which of their receipts were recorded. The two cannot disagree, so nothing else needs keeping. Only
a roll-up hides single messages: the sink then keeps a state beside the lake (:func:`state_table`), older than the
events that are laid over it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from collectors.bronze import Bronze
from collectors.nats.pending import Entry, PendingMessages
from collectors.nats.unfinished import COLUMNS, Stream, open_messages
from collectors.sink import sealed

#: How far back unfinished messages are looked for when there is no newer state.
HORIZON = timedelta(days=7)
_MARGIN_US = 600_000_000

_STATE = pa.schema(
    [
        ("queue", pa.string()),
        ("generation", pa.int64()),
        ("sequence", pa.int64()),
        ("subscriber", pa.string()),
        ("enqueued_at", pa.int64()),
        ("tenant", pa.string()),
        ("attempts", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Row:
    """What the lake's events say of one message and subscriber."""

    generation: int
    sequence: int
    subscriber: str | None
    enqueued_at: int | None
    tenant: str | None
    attempts: int
    arrived: bool
    finished: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier runs left: a state, newest sequences at that time, and the lake's events since (or all)."""

    state: pa.Table
    tops: Mapping[str, tuple[int, int]]  # queue → generation, newest sequence
    events: pa.Table

    def knows(self, queue: str) -> bool:
        """Whether the queue was ever watched."""
        return queue in self.tops or any(queue == name for name in self.events.column("queue").unique().to_pylist())

    def subscribers(self, queue: str) -> set[str]:
        """The subscribers that were ever named, as far back as is remembered."""
        chosen = [table.filter(pc.field("queue") == queue).column("subscriber") for table in (self.events, self.state)]
        return {name for column in chosen for name in column.unique().to_pylist() if name is not None}

    def rows(self, queue: str) -> Iterator[Row]:
        """What the events say of ``queue``'s messages."""
        chosen = self.events.filter(pc.field("queue") == queue).drop_columns(["queue"])
        for batch in chosen.to_batches():
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Row(**dict(zip(chosen.column_names, values, strict=True)))

    def entries(self, queue: str) -> Iterator[tuple[int, Entry]]:
        """The state's unfinished messages of ``queue``, each with its generation."""
        for row in self.state.filter(pc.field("queue") == queue).to_pylist():
            entry = Entry(row["sequence"], row["subscriber"], row["enqueued_at"], row["tenant"], row["attempts"])
            yield row["generation"], entry


def recall(lake: Bronze, source: str, state: tuple[pa.Table, int] | None) -> Memory:
    """The memory of ``source``: its newest state, if any, and the events written since then."""
    since = datetime.now(UTC) - HORIZON
    table, tops = _STATE.empty_table(), {}
    if state is not None:
        table = state[0]
        since = datetime.fromtimestamp((state[1] - _MARGIN_US) / 1e6, UTC)
        tops = {queue: (top[0], top[1]) for queue, top in json.loads(table.schema.metadata[b"tops"]).items()}
    known: dict[Stream, set[int]] = defaultdict(set)
    for row in table.select(["queue", "generation", "sequence"]).to_pylist():
        known[row["queue"], row["generation"]].add(row["sequence"])
    events = open_messages(lambda: lake.scan("message_events", COLUMNS, since), source, known)
    return Memory(table, tops, events)


def restore(
    pending: PendingMessages, memory: Memory, queue: str, generation: int, subscribers: tuple[str | None, ...]
) -> None:
    """Fill the empty ``pending`` with what was unfinished for ``subscribers`` when the last batch was written."""
    for of, entry in memory.entries(queue):
        if of == generation:
            pending.enqueue(entry.sequence, entry.enqueued_at, entry.tenant, (entry.subscriber,), entry.attempts)
    known_of, known_to = memory.tops.get(queue, (generation, 0))
    covered = known_to if known_of == generation else 0
    messages: dict[int, dict[str | None, Row]] = {}
    for row in memory.rows(queue):
        if row.generation != generation:
            continue
        if row.sequence > covered:
            messages.setdefault(row.sequence, {})[row.subscriber] = row
            continue
        told = pending.attempts(row.sequence, row.subscriber)
        if told is not None and row.finished:
            pending.finish(row.sequence, row.subscriber)
        elif told is not None and row.attempts > told:
            pending.begin(row.sequence, row.subscriber, row.attempts)
    for sequence in sorted(messages):
        _restore_message(pending, sequence, messages[sequence], subscribers)
    pending.top = max([pending.top, covered, *messages])


def _restore_message(
    pending: PendingMessages, sequence: int, rows: Mapping[str | None, Row], subscribers: tuple[str | None, ...]
) -> None:
    arrival = next((row for row in rows.values() if row.arrived), None)
    routed = arrival is not None and arrival.subscriber is not None
    for subscriber in tuple(rows) if routed else subscribers:
        row = rows.get(subscriber)
        if row is not None and row.finished:
            continue
        known = arrival or row
        if known is not None:
            attempts = row.attempts if row else 0
            pending.enqueue(sequence, known.enqueued_at, known.tenant, (subscriber,), attempts)


def state_table(streams: Iterable[tuple[str, int, PendingMessages]]) -> pa.Table:
    """All that must be remembered now, for the sink to keep: (queue, generation, pending messages) of each stream."""
    columns: dict[str, list[object]] = {name: [] for name in _STATE.names}
    tops: dict[str, tuple[int, int]] = {}
    for queue, generation, pending in streams:
        tops[queue] = (generation, pending.top)
        for entry in pending.entries():
            values = (queue, generation, *entry)
            for name, value in zip(("queue", "generation", *Entry._fields), values, strict=True):
                columns[name].append(value)
    table = pa.table(columns, schema=_STATE).replace_schema_metadata({b"tops": json.dumps(tops).encode()})
    return sealed(table)
