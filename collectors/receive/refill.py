"""What a restarted receiver knows again of the events before: read from bronze, which has them for certain.

A crash may come between a commit and its answer; the sender then sends again what the lake already has.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collectors.bronze import Bronze
from collectors.receive.batch import CLIENT, SPANS
from collectors.receive.horizon import Horizon
from collectors.receive.identity import BATCHED, ENQUEUED, ID, key_of, read
from collectors.receive.memory import Memory, Sent
from collectors.receive.polls import PollCount, PollTotals, Where

#: So far back single messages are remembered: senders hold their spans for seconds.
_MEMORY_SECONDS = 120.0
#: And so far back, at most, lies what is sent again because its answer was cut off.
_NEWEST_SECONDS = 30.0
_REMEMBERED = ["enqueued", "received"]
_COLUMNS = [
    "event_type",
    "broker",
    "queue",
    "subscriber",
    "worker",
    "tenant",
    "message_id",
    "enqueued_at",
    "priority",
    "clock",
]


def recall_polls(bronze: Bronze, totals: PollTotals, source: str, last: int, seconds: float) -> None:
    """Let the totals of polls go on from where they were ``seconds`` before ``last`` or later."""
    newest: dict[Where, tuple[datetime, PollCount]] = {}
    columns = ["broker", "queue", "subscriber", "polls_total", "empty_polls_total", "source", "ingested_at"]
    for rows in bronze.scan("queue_samples", columns, _before(last, seconds)):
        ours = pc.and_(pc.equal(rows.column("source"), source), pc.is_valid(rows.column("polls_total")))
        for row in rows.filter(ours).to_pylist():
            where = (row["broker"], row["queue"], row["subscriber"])
            if where not in newest or newest[where][0] < row["ingested_at"]:
                newest[where] = row["ingested_at"], PollCount(where, row["polls_total"], row["empty_polls_total"])
    totals.keep({where: count for where, (_, count) in newest.items()})


def refill(bronze: Bronze, horizon: Horizon, memory: Memory, last: int, *, seconds: float, most: int) -> int:
    """Fill ``horizon`` with the events committed in the ``seconds`` before ``last`` (microseconds); their number."""
    count = _add(bronze, horizon, _before(last, seconds))
    if count > horizon.holds:
        # Bronze gives rows in any order, and the horizon lets go of what was added first.
        _add(bronze, horizon, _before(last, min(seconds, _NEWEST_SECONDS)))
    _remember(bronze, memory, last, most)
    return count


def _add(bronze: Bronze, horizon: Horizon, since: datetime) -> int:
    """Add the events that were committed at ``since`` or later to ``horizon``; their number."""
    count = 0
    for rows in bronze.scan("message_events", ["event_id", "source"], since):
        ids, source = rows.column("event_id"), rows.column("source")
        spans = ids.filter(pc.and_(pc.equal(source, SPANS), _made_by_us(ids)))
        clients = ids.filter(pc.equal(source, CLIENT))
        for keys in (read(spans), np.array([key_of(one) for one in clients.to_pylist()], np.uint64)):
            if len(keys):
                horizon.add(keys, time.monotonic())
                count += len(keys)
    return count


def _made_by_us(ids: pa.Array) -> pa.Array:
    """Whether ids look like those of spans: other programs may write rows under any source."""
    return pc.match_substring_regex(ids, ID)


def _before(last: int, seconds: float) -> datetime:
    return datetime.fromtimestamp(last / 1e6, UTC) - timedelta(seconds=seconds)


def _remember(bronze: Bronze, memory: Memory, last: int, most: int) -> None:
    by_name: dict[tuple[str, str, str], Sent] = {}
    received: list[tuple[tuple[str, str, str], str | None, bytes]] = []
    columns = ["event_id", "trace_id", "source", *_COLUMNS]
    for rows in bronze.scan("message_events", columns, _before(last, _MEMORY_SECONDS)):
        ours = pc.and_(
            pc.equal(rows.column("source"), SPANS), pc.is_in(rows.column("event_type"), pa.array(_REMEMBERED))
        )
        ours = pc.and_(ours, pc.and_(_made_by_us(rows.column("event_id")), pc.is_valid(rows.column("trace_id"))))
        for row in rows.filter(ours).to_pylist():
            if len(by_name) >= most or len(received) >= most:
                break
            span_id, name = bytes.fromhex(row["event_id"][:16]), (row["broker"], row["queue"], row["message_id"])
            if row["event_type"] == "received":
                received.append((name, row["subscriber"] or row["worker"], span_id))
            else:
                by_name[name] = _sent(row, span_id, memory)
    for name, subscriber, span_id in received:
        if name in by_name:
            by_name[name].attempt(subscriber, span_id)


def _sent(row: dict[str, Any], span_id: bytes, memory: Memory) -> Sent:
    trace_id, letter = bytes.fromhex(row["trace_id"]), row["event_id"][32].encode()
    context = trace_id + span_id
    name = row["message_id"].rsplit(".", 1)[0] if letter == BATCHED else row["message_id"]
    sent = memory.get(context) or Sent(row["broker"], row["queue"], name, context)
    sent.enqueued_at = None if row["enqueued_at"] is None else round(row["enqueued_at"].timestamp() * 1e6)
    sent.clock, sent.tenant, sent.priority, sent.known = row["clock"], row["tenant"], row["priority"], True
    sent.count = 2 if letter == BATCHED else 1
    memory.put(context, sent)
    memory.put((sent.broker, sent.queue, name), sent)
    parent = bytes.fromhex(row["event_id"][33:])
    if letter == ENQUEUED and any(parent):
        memory.wrap(trace_id + parent, sent)
    return sent
