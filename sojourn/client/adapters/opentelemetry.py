"""OpenTelemetry: ``provider.add_span_processor(MessagingSpanProcessor())`` in an application that is instrumented.

No instrumentation tells a message's tenant, attempt or enqueue time. The processor puts them on messaging spans, from
the baggage (entries of the same names, which travel with the message) or from ``describe``, so that any OTLP exporter
carries them to a collector. With a ``recorder`` it tells the recorder of the spans itself, and no exporter is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import baggage
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from sojourn.client.adapters.wrapping import as_text
from sojourn.client.recorder import Recorder

#: Span attribute → its type; as baggage all of them are text. ``sojourn.enqueued_at`` is in unix nanoseconds.
ATTRIBUTES: dict[str, type[str] | type[int]] = {
    "sojourn.tenant": str,
    "sojourn.enqueued_at": int,
    "sojourn.attempt": int,
    "sojourn.subscriber": str,
    "sojourn.outcome": str,
    "sojourn.priority": int,
    "sojourn.worker": str,
}
_QUEUE = ("messaging.destination.name", "messaging.destination")
_MESSAGE_ID = ("messaging.message.id", "messaging.message_id")
_OPERATION = ("messaging.operation.type", "messaging.operation", "messaging.operation.name")
_SUBSCRIBER = ("sojourn.subscriber", "messaging.consumer.group.name", "messaging.kafka.consumer.group")
_BATCH = ("messaging.batch.message_count", "messaging.batch_size")
_SYSTEMS = {"aws.sqs": "sqs", "aws_sqs": "sqs", "AmazonSQS": "sqs"}
_SENDS = frozenset({"send", "publish", "produce", "create"})
_POLLS = frozenset({"receive", "poll"})
_SETTLES = frozenset({"settle", "ack"})
_OUTCOMES = frozenset({"completed", "failed", "dead_lettered", "expired", "sidelined", "delayed"})


class MessagingSpanProcessor(SpanProcessor):
    """Puts what Sojourn asks for on messaging spans; with ``recorder``, records what the spans tell.

    ``describe`` is called with each messaging span as it starts and returns attributes, those of :data:`ATTRIBUTES` or
    others; what it returns wins over the baggage. What it raises is swallowed: a span is no reason to fail.
    """

    def __init__(
        self, describe: Callable[[Any], Mapping[str, Any]] | None = None, *, recorder: Recorder | None = None
    ) -> None:
        self._describe, self._recorder = describe, recorder

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Put the attributes on a span of a producer or consumer."""
        if span.kind not in (SpanKind.PRODUCER, SpanKind.CONSUMER) and "messaging.system" not in (
            span.attributes or {}
        ):
            return
        carried = baggage.get_all(parent_context)
        for name, kind in ATTRIBUTES.items():
            if name in carried and (value := _typed(carried[name], kind)) is not None:
                span.set_attribute(name, value)
        if self._describe is not None:
            try:
                described = self._describe(span)
            except Exception:
                return
            for name, value in described.items():
                if (typed := _typed(value, ATTRIBUTES[name]) if name in ATTRIBUTES else value) is not None:
                    span.set_attribute(name, typed)

    def on_end(self, span: Any) -> None:
        """Record what a messaging span tells, where there is a recorder."""
        found = span.attributes or {}
        system, queue = found.get("messaging.system"), _first(found, _QUEUE)
        if self._recorder is not None and system and queue and span.end_time:
            broker = _SYSTEMS.get(str(system), str(system))
            _record(self._recorder, span, found, {"queue": str(queue), "broker": broker})

    def shutdown(self) -> None:
        """Send what is left; the recorder stays open, for others may use it."""
        self.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what is left."""
        return self._recorder is None or self._recorder.flush(timeout_millis / 1000)


def _record(recorder: Recorder, span: Any, found: Mapping[str, Any], where: dict[str, Any]) -> None:
    operation = str(_first(found, _OPERATION) or "").lower()
    # RabbitMQ pushes: there a consumer's ``receive`` span covers the handling of one message.
    pushed = where["broker"] == "rabbitmq" and span.kind is SpanKind.CONSUMER
    if not pushed and (operation in _POLLS or (span.kind is SpanKind.CONSUMER and span.name.endswith(" receive"))):
        batch = _first(found, _BATCH)
        if isinstance(batch, int):
            subscriber = as_text(_first(found, _SUBSCRIBER))
            waited = (span.end_time - span.start_time) / 1e9
            recorder.polled(messages=batch, waited=waited, subscriber=subscriber, **where)
        return
    # Where no id is told, the span that sent the message names it: consumers' spans are its children, or link to it.
    context = span.context
    sends = operation in _SENDS or (not operation and span.kind == SpanKind.PRODUCER)
    sender = context if sends else (span.links[0].context if span.links else span.parent)
    message_id = _first(found, _MESSAGE_ID)
    if message_id is None and sender is not None:
        message_id = f"{sender.trace_id:032x}{sender.span_id:016x}"
    details = where | {
        "message_id": as_text(message_id) or "",
        "tenant": as_text(found.get("sojourn.tenant")),
        "enqueued_at": found.get("sojourn.enqueued_at"),
        "priority": found.get("sojourn.priority"),
        "trace_id": f"{context.trace_id:032x}",
    }
    if sends:
        failed = span.status.status_code is StatusCode.ERROR
        if operation != "create":  # a message that is made is not sent yet
            recorder.published(seconds=max(0, span.end_time - span.start_time) / 1e9, failed=failed, **where)
        if not failed:
            recorder.enqueued(occurred_at=span.start_time, **details)
        return
    if span.kind is not SpanKind.CONSUMER and operation not in ("process", "deliver", *_SETTLES):
        return
    details |= {"subscriber": as_text(_first(found, _SUBSCRIBER)), "attempt": found.get("sojourn.attempt")}
    failed = span.status.status_code is StatusCode.ERROR
    outcome = found.get("sojourn.outcome")
    ending = outcome if outcome in _OUTCOMES else "failed" if failed else "completed"
    if operation not in _SETTLES:
        recorder.received(occurred_at=span.start_time, **details)
        if ending in ("completed", "failed"):
            details["processing_seconds"] = max(0.0, (span.end_time - span.start_time) / 1e9)
    reason = found.get("error.type") or span.status.description if failed else None
    getattr(recorder, ending)(occurred_at=span.end_time, reason=reason, **details)


def _first(found: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((found[name] for name in names if found.get(name) not in (None, "")), None)


def _typed(value: object, kind: type[str] | type[int]) -> str | int | None:
    if kind is str:
        return as_text(value)
    try:
        return int(str(value))
    except ValueError:
        return None
