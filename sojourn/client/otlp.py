"""How events go to any OpenTelemetry collector: OTLP/HTTP in JSON, ``POST /v1/traces``, one span an event.

A send span says enqueued. A process span says received, at its start, and how the attempt ended, at its end: a span can
only be told when it has ended, so that a ``received`` waits here for its end. An ending whose beginning is not known is
a settle span. ``sojourn.outcome`` names each ending. Spans cannot carry summaries: where the buffer overflows, or polls
or publishes were counted, a span ``sojourn.report`` holds their rows as JSON in ``sojourn.summaries``,
``sojourn.polls`` and ``sojourn.publishes``.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any

from sojourn.client.batch import Batch
from sojourn.client.events import Event
from sojourn.client.publishes import PublishCount

PATH = "/v1/traces"
_INTERNAL, _PRODUCER, _CONSUMER = 1, 4, 5
_ERROR = 2
#: Attempts under way that are remembered.
MOST_BEGUN = 16_384
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
#: Broker → ``messaging.system``, where the semantic conventions have another word.
SYSTEMS = {"sqs": "aws_sqs"}


class OtlpFormat:
    """Writes events as spans; ids follow from the event, so that one that is told again is the same span."""

    path = PATH

    def __init__(self, worker: str | None) -> None:
        self._worker = worker
        #: Attempt → when it began, in microseconds; the oldest goes first, and is then told by a settle span alone.
        self._begun: dict[tuple[object, ...], int] = {}
        resource = {"attributes": [_attribute("service.name", worker or "unknown_service")]}
        self._head = f'{{"resourceSpans":[{{"resource":{_json(resource)},"scopeSpans":[{{"scope":{{"name":"sojourn"}},'

    def event(self, event: Event) -> str | None:
        """One event as a span; None for a beginning, which goes with its end."""
        kind = event.event_type
        attempt = (event.broker, event.queue, event.subscriber, event.message_id, event.attempt)
        started = event.occurred_at
        if kind == "enqueued":
            operation = "send"
        elif kind == "received":
            self._begun[attempt] = event.occurred_at
            if len(self._begun) > MOST_BEGUN:
                self._begun.pop(next(iter(self._begun)))
            return None
        else:
            begun = self._begun.pop(attempt, None)
            if begun is None and event.processing_seconds is not None:
                begun = event.occurred_at - round(event.processing_seconds * 1e6)
            operation = "settle" if begun is None else "process"
            started = event.occurred_at if begun is None else min(begun, event.occurred_at)
        attributes: dict[str, str | int | None] = {
            "messaging.system": SYSTEMS.get(event.broker, event.broker),
            "messaging.operation.type": operation,
            "messaging.operation.name": operation,
            "messaging.destination.name": event.queue,
            "messaging.message.id": event.message_id,
            "messaging.consumer.group.name": event.subscriber,
            "sojourn.subscriber": event.subscriber,
            "sojourn.tenant": event.tenant,
            "sojourn.enqueued_at": None if event.enqueued_at is None else event.enqueued_at * 1000,
            "sojourn.attempt": event.attempt,
            "sojourn.priority": event.priority,
            "sojourn.worker": self._worker,
            "sojourn.outcome": kind if operation != "send" else None,
            "error.type": event.reason if kind in ("failed", "dead_lettered") else None,
        }
        digest = blake2b(repr(event).encode(), digest_size=24).hexdigest()
        known = event.trace_id is not None and _TRACE_ID.fullmatch(event.trace_id)
        span: dict[str, Any] = {
            "traceId": event.trace_id if known else digest[:32],
            "spanId": digest[32:],
            "name": f"{operation} {event.queue}",
            "kind": _PRODUCER if operation == "send" else _CONSUMER,
            # 64-bit integers are strings in protobuf's JSON.
            "startTimeUnixNano": str(started * 1000),
            "endTimeUnixNano": str(event.occurred_at * 1000),
            "attributes": [_attribute(name, value) for name, value in attributes.items() if value is not None],
        }
        if kind in ("failed", "dead_lettered"):
            span["status"] = {"code": _ERROR, "message": event.reason or kind}
        return _json(span)

    def summary(self, row: dict[str, Any]) -> str:
        """One row of ``event_summaries`` as JSON."""
        return _json(row)

    def poll(self, broker: str, queue: str, subscriber: str | None, polls: int, empty: int) -> str:
        """What one consumer polled since it was last told."""
        return _json({"broker": broker, "queue": queue, "subscriber": subscriber, "polls": polls, "empty_polls": empty})

    def publishes(self, broker: str, queue: str, until: int, count: PublishCount) -> str:
        """What became of publishes to one queue, ``until`` then."""
        return _json(count.row(broker, queue, until))

    def body(self, batch: Batch, sender: str) -> bytes:
        """An ExportTraceServiceRequest."""
        spans = list(batch.events)
        if batch.summaries or batch.polls or batch.publishes:
            spans.append(self._report(batch, sender))
        return (self._head + '"spans":[' + ",".join(spans) + "]}]}]}").encode()

    def refused(self, answer: dict[str, Any]) -> tuple[int, str]:
        """``partialSuccess`` of the answer."""
        partial = answer.get("partialSuccess")
        if not isinstance(partial, dict):
            return 0, ""
        try:
            return int(partial.get("rejectedSpans", 0)), str(partial.get("errorMessage", ""))
        except (TypeError, ValueError):
            return 0, ""

    def _report(self, batch: Batch, sender: str) -> str:
        newest = max((json.loads(row)["newest_occurred_at"] for row in batch.summaries), default=0) * 1000
        digest = blake2b(f"{sender} {batch.sequence}".encode(), digest_size=24).hexdigest()
        return _json(
            {
                "traceId": digest[:32],
                "spanId": digest[32:],
                "name": "sojourn.report",
                "kind": _INTERNAL,
                "startTimeUnixNano": str(newest),
                "endTimeUnixNano": str(newest),
                "attributes": [
                    _attribute("sojourn.summaries", f"[{','.join(batch.summaries)}]"),
                    _attribute("sojourn.polls", f"[{','.join(batch.polls)}]"),
                    _attribute("sojourn.publishes", f"[{','.join(batch.publishes)}]"),
                    _attribute("sojourn.conflated", batch.conflated),
                ],
            }
        )


def _attribute(name: str, value: str | int) -> dict[str, Any]:
    return {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
