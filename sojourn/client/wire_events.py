"""How events go to a collector of Sojourn: ``POST /v1/events``, one JSON object a batch."""

from __future__ import annotations

import json
from hashlib import blake2b
from json.encoder import encode_basestring as quote_plain
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from sojourn.client.batch import Batch
from sojourn.client.events import Event
from sojourn.client.publishes import PublishCount

PATH = "/v1/events"
#: The beginnings of events that are remembered, one for each (kind, broker, queue, subscriber, tenant).
MOST_HEADS = 4096


class EventsFormat:
    """Writes events by hand: most of one is the same as in others, and the application's interpreter is shared."""

    path = PATH

    def __init__(self, worker: str | None) -> None:
        self._tail = f',"worker":{quote(worker)}}}' if worker else "}"
        self._heads: dict[tuple[str | None, ...], tuple[str, str]] = {}

    def event(self, event: Event) -> str:
        """One event as JSON, its id included."""
        kind, broker, queue, message_id, subscriber, tenant, attempt, enqueued, occurred, seconds = event[:10]
        key = (kind, broker, queue, subscriber, tenant)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= MOST_HEADS:
                self._heads.clear()
            head = self._heads[key] = _head(kind, broker, queue, subscriber, tenant)
        number = "null" if attempt is None else str(attempt)
        # Equal to collectors.validate.default_event_id: the event has one id, whoever works it out.
        named = f'{head[1]}{quote_plain(message_id)}, "{kind}", {number}, {occurred}]'
        event_id = blake2b(named.encode("utf-8"), digest_size=16).hexdigest()
        written = f'{head[0]}{quote(message_id)},"occurred_at":{occurred},"event_id":"{event_id}"'
        if attempt is not None:
            written += f',"attempt":{attempt}'
        if enqueued is not None:
            written += f',"enqueued_at":{enqueued}'
        if seconds is not None:
            written += f',"processing_seconds":{seconds!r}'
        priority, trace_id, reason = event[10:]
        if priority is not None:
            written += f',"priority":{priority}'
        if trace_id is not None:
            written += f',"trace_id":{quote(trace_id)}'
        if reason is not None:
            written += f',"reason":{quote(reason)}'
        return written + self._tail

    def summary(self, row: dict[str, Any]) -> str:
        """One row of ``event_summaries`` as JSON."""
        return json.dumps(row, separators=(",", ":"))

    def poll(self, broker: str, queue: str, subscriber: str | None, polls: int, empty: int) -> str:
        """What one consumer polled since it was last told."""
        row = {"broker": broker, "queue": queue, "subscriber": subscriber, "polls": polls, "empty_polls": empty}
        return json.dumps({name: value for name, value in row.items() if value is not None}, separators=(",", ":"))

    def publishes(self, broker: str, queue: str, until: int, count: PublishCount) -> str:
        """What became of publishes to one queue, ``until`` then."""
        return json.dumps(count.row(broker, queue, until), separators=(",", ":"))

    def body(self, batch: Batch, sender: str) -> bytes:
        """The body of one request."""
        return (
            f'{{"version":1,"sender":"{sender}","sequence":{batch.sequence},"conflated":{batch.conflated},"events":['
            + ",".join(batch.events)
            + '],"summaries":['
            + ",".join(batch.summaries)
            + '],"polls":['
            + ",".join(batch.polls)
            + '],"publishes":['
            + ",".join(batch.publishes)
            + "]}"
        ).encode()

    def refused(self, answer: dict[str, Any]) -> tuple[int, str]:
        """How many events of an accepted batch the collector would not have, and why the first entry was refused."""
        listed = answer.get("rejected")
        rejected = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        events = sum(one.get("list", "events") == "events" for one in rejected)
        return events, str(rejected[0].get("reason", "")) if rejected else ""


def _head(kind: str, broker: str, queue: str, subscriber: str | None, tenant: str | None) -> tuple[str, str]:
    head = f'{{"event_type":"{kind}","broker":{quote(broker)},"queue":{quote(queue)},'
    if subscriber is not None:
        head += f'"subscriber":{quote(subscriber)},'
    if tenant is not None:
        head += f'"tenant":{quote(tenant)},'
    named = "null" if subscriber is None else quote_plain(subscriber)
    return head + '"message_id":', f"[{quote_plain(broker)}, {quote_plain(queue)}, {named}, "
