"""Messaging spans carry what Sojourn asks for, or become events; events become spans that any collector takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry import baggage, context, trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import sojourn
from sojourn.client import otlp
from sojourn.client import sender as sending
from sojourn.client.adapters.opentelemetry import MessagingSpanProcessor
from sojourn.client.events import Event
from tests.client.collector import Collector

Make = Callable[..., tuple[Any, InMemorySpanExporter]]
MESSAGING = {"messaging.system": "kafka", "messaging.destination.name": "orders", "messaging.message.id": "m1"}


@pytest.fixture
def tracer() -> Make:
    """A tracer of an application that has the processor, and what it exports."""

    def make(*args: Any, **options: Any) -> tuple[Any, InMemorySpanExporter]:
        provider, exporter = TracerProvider(), InMemorySpanExporter()
        provider.add_span_processor(MessagingSpanProcessor(*args, **options))
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return provider.get_tracer("test"), exporter

    return make


def test_messaging_spans_get_their_attributes_from_the_baggage(tracer: Make) -> None:
    trace_with, exporter = tracer()
    carried = context.get_current()
    entries = {"sojourn.tenant": "acme", "sojourn.attempt": "2", "sojourn.enqueued_at": "1700000000000000000", "x": "y"}
    for name, value in (entries | {"sojourn.priority": "high"}).items():
        carried = baggage.set_baggage(name, value, carried)
    trace_with.start_span("process", carried, SpanKind.CONSUMER).end()
    trace_with.start_span("query", carried, SpanKind.CLIENT).end()
    consumer, other = exporter.get_finished_spans()
    assert dict(consumer.attributes) == {
        "sojourn.tenant": "acme",
        "sojourn.attempt": 2,
        "sojourn.enqueued_at": 1_700_000_000_000_000_000,
    }
    assert not other.attributes


def test_what_the_application_describes_wins_and_what_it_raises_harms_nothing(tracer: Make) -> None:
    def describe(span: Any) -> dict[str, Any]:
        return {"sojourn.tenant": span.name, "sojourn.attempt": "3", "sojourn.worker": None, "own": True}

    trace_with, exporter = tracer(describe)
    carried = baggage.set_baggage("sojourn.tenant", "acme")
    trace_with.start_span("zeta", carried, SpanKind.PRODUCER).end()
    assert dict(exporter.get_finished_spans()[0].attributes) == {
        "sojourn.tenant": "zeta",
        "sojourn.attempt": 3,
        "own": True,
    }
    trace_with, exporter = tracer(lambda span: 1 / 0)  # type: ignore[arg-type, return-value]
    trace_with.start_span("zeta", carried, SpanKind.PRODUCER).end()
    assert dict(exporter.get_finished_spans()[0].attributes) == {"sojourn.tenant": "acme"}


def test_with_a_recorder_spans_become_events_and_polls(tracer: Make, collector: Collector) -> None:
    second = 1_000_000_000
    at = 1_700_000_000 * second
    with sojourn.Recorder(collector.url, flush_interval=0.05) as recorder:
        trace_with, _ = tracer(recorder=recorder)
        own = {"sojourn.tenant": "acme", "sojourn.subscriber": "billing", "sojourn.attempt": 1}

        def span(name: str, kind: SpanKind, seconds: int, attributes: dict[str, Any], **options: Any) -> Any:
            made = trace_with.start_span(name, kind=kind, attributes=attributes, start_time=at, **options)
            if options.pop("fail", False):
                made.set_status(StatusCode.ERROR)
            made.end(at + seconds * second)
            return made

        operation = "messaging.operation.type"
        sent = span("send orders", SpanKind.PRODUCER, 1, {**MESSAGING, **own, operation: "send"})
        span("process orders", SpanKind.CONSUMER, 2, {**MESSAGING, **own, operation: "process"})
        failing = trace_with.start_span(
            "process orders",
            kind=SpanKind.CONSUMER,
            attributes={**MESSAGING, **own, "sojourn.attempt": 2, "sojourn.enqueued_at": at - second},
            start_time=at,
        )
        failing.set_attribute("error.type", "Timeout")
        failing.set_status(StatusCode.ERROR)
        failing.end(at + second)
        settled = {**MESSAGING, **own, operation: "settle", "sojourn.outcome": "sidelined"}
        span("settle orders", SpanKind.CLIENT, 3, settled)
        span(
            "receive orders",
            SpanKind.CONSUMER,
            4,
            {**MESSAGING, operation: "receive", "messaging.batch.message_count": 0},
        )
        span("unrelated", SpanKind.SERVER, 1, {"http.route": "/"})
        old = {"messaging.system": "aws.sqs", "messaging.destination": "q2"}
        producer = span("q2 send", SpanKind.PRODUCER, 1, old)
        linked = [trace.Link(producer.get_span_context())]
        span("q2 process", SpanKind.CONSUMER, 1, {**old, "messaging.operation": "process"}, links=linked)
        assert recorder.flush(60)
    told = [event for event in collector.events if event["queue"] == "orders"]
    assert [(e["event_type"], e.get("attempt"), (e["occurred_at"] - at // 1000) / 1e6) for e in told] == [
        ("enqueued", None, 0),
        ("received", 1, 0),
        ("completed", 1, 2),
        ("received", 2, 0),
        ("failed", 2, 1),
        ("sidelined", 1, 3),
    ]
    assert told[2]["processing_seconds"] == 2
    assert told[4]["reason"] == "Timeout"
    assert told[4]["enqueued_at"] == (at - second) // 1000
    assert {event["tenant"] for event in told} == {"acme"}
    assert told[0]["trace_id"] == f"{sent.get_span_context().trace_id:032x}"
    assert [event.get("subscriber") for event in told] == [None] + ["billing"] * 5
    (polls,) = collector.polls
    assert (polls["polls"], polls["empty_polls"]) == (4000, 4000)
    assert {(one["queue"], one["publishes"], one["errors"]) for one in collector.publishes} == {
        ("orders", 1, 0),
        ("q2", 1, 0),
    }
    others = [event for event in collector.events if event["queue"] == "q2"]
    assert {event["broker"] for event in others} == {"sqs"}
    assert len({event["message_id"] for event in others}) == 1
    assert [event["event_type"] for event in others] == ["enqueued", "received", "completed"]


def test_a_receive_span_of_rabbitmq_is_the_handling_of_a_message(tracer: Make, collector: Collector) -> None:
    found = {"messaging.system": "rabbitmq", "messaging.destination": "orders", "messaging.message_id": "m1"}
    with sojourn.Recorder(collector.url, flush_interval=0.05) as recorder:
        trace_with, _ = tracer(recorder=recorder)
        attributes = found | {"messaging.operation": "receive"}
        trace_with.start_span("orders receive", kind=SpanKind.CONSUMER, attributes=attributes).end()
    assert [event["event_type"] for event in collector.events] == ["received", "completed"]
    assert collector.polls == []


def spans(body: bytes) -> list[Any]:
    """The spans of a request, read by OTLP's own protobuf."""
    request = Parse(body, ExportTraceServiceRequest())
    return [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]


def test_exported_spans_are_otlp_s_own_json(collector: Collector) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with sojourn.Recorder(collector.url, worker="w1", flush_interval=0.05, export="otlp", broker="sqs") as recorder:
        recorder.enqueued("orders", "m1", tenant='a"ç', enqueued_at=1.7e9, occurred_at=1.7e9, trace_id=trace_id)
        recorder.received("orders", "m1", attempt=1, occurred_at=1.7e9 + 1, subscriber="billing")
        recorder.failed("orders", "m1", attempt=1, occurred_at=1.7e9 + 3, subscriber="billing", reason="Timeout")
        recorder.completed("orders", "m2", attempt=1, occurred_at=1.7e9 + 5, processing_seconds=0.5)
        recorder.sidelined("orders", "m3", occurred_at=1.7e9 + 6)
        assert recorder.flush(60)
    assert set(collector.paths) == {"/v1/traces"}
    found = [span for request in collector.requests for span in spans(json.dumps(request).encode())]
    assert [(span.name, span.kind) for span in found] == [
        ("send orders", 4),
        ("process orders", 5),
        ("process orders", 5),
        ("settle orders", 5),
    ]
    assert [(s.start_time_unix_nano, s.end_time_unix_nano) for s in found] == [
        (1_700_000_000_000_000_000, 1_700_000_000_000_000_000),
        (1_700_000_001_000_000_000, 1_700_000_003_000_000_000),
        (1_700_000_004_500_000_000, 1_700_000_005_000_000_000),
        (1_700_000_006_000_000_000, 1_700_000_006_000_000_000),
    ]
    assert all(len(span.span_id) > 0 and len(span.trace_id) > 0 for span in found)
    attributes = [{one.key: one.value.string_value or one.value.int_value for one in s.attributes} for s in found]
    assert attributes[0]["sojourn.tenant"] == 'a"ç'
    assert attributes[0]["sojourn.enqueued_at"] == 1_700_000_000_000_000_000
    assert attributes[0]["messaging.system"] == "aws_sqs"
    assert attributes[1]["sojourn.outcome"] == "failed"
    assert attributes[1]["sojourn.attempt"] == 1
    assert attributes[1]["messaging.consumer.group.name"] == "billing"
    assert (found[1].status.code, found[1].status.message) == (2, "Timeout")
    assert attributes[3]["sojourn.outcome"] == "sidelined"
    assert recorder.stats().sent == recorder.stats().recorded == 5


def test_what_overflows_is_reported_in_a_span_of_its_own(collector: Collector) -> None:
    collector.script = [503] * 3
    with sojourn.Recorder(collector.url, capacity=256, export="otlp", flush_interval=0.05) as recorder:
        for number in range(3_000):
            recorder.enqueued("orders", f"m{number}")
        recorder.polled("orders", messages=0, waited=0.002)
        assert recorder.flush(60)
    accepted = collector.requests[3:]
    found = [span for request in accepted for span in spans(json.dumps(request).encode())]
    reports = [span for span in found if span.name == "sojourn.report"]
    values = [{one.key: one.value.string_value or one.value.int_value for one in s.attributes} for s in reports]
    summarised = sum(row["enqueued"] for value in values for row in json.loads(value["sojourn.summaries"]))
    assert summarised + len(found) - len(reports) == 3_000
    assert summarised == recorder.stats().summarised > 0
    assert [row["polls"] for value in values for row in json.loads(value["sojourn.polls"])] == [2]


def test_ends_behind_a_batch_of_nothing_but_beginnings_are_sent_at_close(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = sojourn.Recorder(collector.url, export="otlp", flush_interval=60)
    for number in range(500):
        recorder.received("orders", f"m{number}")
    for number in range(500):
        recorder.completed("orders", f"m{number}")
    monkeypatch.setattr(sending, "MOST_EVENTS", 50)
    assert recorder.close()
    found = [span for request in collector.requests for span in spans(json.dumps(request).encode())]
    assert len(found) == 500


def test_an_attempt_that_never_ends_is_forgotten_in_time() -> None:
    wire = otlp.OtlpFormat(None)
    for number in range(otlp.MOST_BEGUN + 10):
        event = Event("received", "redis", "q", f"m{number}", None, None, 1, None, number, None, None, None, None)
        assert wire.event(event) is None
    assert len(wire._begun) == otlp.MOST_BEGUN


def test_a_collector_s_partial_success_is_counted() -> None:
    wire = otlp.OtlpFormat(None)
    assert wire.refused({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}) == (2, "no")
    for answer in ({}, {"partialSuccess": None}, {"partialSuccess": {"rejectedSpans": "many"}}):
        assert wire.refused(answer)[0] == 0
