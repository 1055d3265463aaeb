"""Records what instrumentations say of messages: ``python -m tests.collectors.receive.record`` writes it anew.

The instrumentations' own code makes the spans, the SDK's own encoder writes them; only the broker is left out. Trace
ids, span ids and times are made the same in each recording, so that it can be compared.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

FOLDER = Path(__file__).parent / "recorded"
BEGIN = 1_780_000_000_000_000_000


class _Numbered(IdGenerator):
    def __init__(self) -> None:
        self._spans, self._traces = itertools.count(1), itertools.count(0xA0)

    def generate_span_id(self) -> int:
        return next(self._spans)

    def generate_trace_id(self) -> int:
        return next(self._traces)


def pika(provider: TracerProvider) -> None:
    """A publish through a blocking channel, whose inner one is instrumented, too; a callback fails, then works."""
    from opentelemetry.instrumentation.pika import utils
    from pika.spec import Basic, BasicProperties

    tracer = provider.get_tracer("opentelemetry.instrumentation.pika")
    parameters = SimpleNamespace(host="127.0.0.1", port=5672)
    channel: Any = SimpleNamespace(connection=SimpleNamespace(params=parameters))
    sent: list[BasicProperties] = []

    def publish(exchange: str, key: str, body: bytes, properties: BasicProperties, mandatory: bool = False) -> None:
        sent.append(properties)

    inner = utils._decorate_basic_publish(publish, channel, tracer)
    outer = utils._decorate_basic_publish(inner, channel, tracer)
    outer("", "orders", b"x", BasicProperties(headers={}))

    def work(*_: Any) -> None:
        if len(seen) == 0:
            seen.append(1)
            raise RuntimeError("no stock")

    seen: list[int] = []
    callback = utils._decorate_callback(work, tracer, "tag")
    for _ in range(2):
        try:
            callback(channel, Basic.Deliver(exchange="", routing_key="orders"), sent[0], b"x")
        except RuntimeError:
            continue


def confluent(provider: TracerProvider) -> None:
    """Two messages produced; one polled alone, both consumed as a batch by another group."""
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor as Instrumentor

    tracer = provider.get_tracer("opentelemetry.instrumentation.confluent_kafka")
    headers: list[Any] = []

    def produce(topic: str, **kwargs: Any) -> None:
        headers.append(kwargs["headers"])

    for _ in range(2):
        Instrumentor.wrap_produce(produce, SimpleNamespace(), tracer, ("orders",), {"headers": []})

    def record(offset: int) -> Any:
        return SimpleNamespace(
            topic=lambda: "orders", partition=lambda: 3, offset=lambda: offset, headers=lambda: headers[offset]
        )

    consumer = SimpleNamespace(_current_consume_span=None, _current_context_token=None)
    for records in ([record(0)], [record(0), record(1)], []):
        if len(records) == 1:
            Instrumentor.wrap_poll(lambda *_: records[0], consumer, tracer, (1.0,), {})  # noqa: B023
        else:
            Instrumentor.wrap_consume(lambda *_: records, consumer, tracer, (2, 1.0), {})  # noqa: B023


def boto3sqs(provider: TracerProvider) -> None:
    """One message sent, received and deleted, then an empty receive."""
    import boto3
    from botocore.stub import Stubber
    from opentelemetry.instrumentation.boto3sqs import Boto3SQSInstrumentor

    instrumentor = Boto3SQSInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        client = boto3.client(
            "sqs", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x", endpoint_url="http://x"
        )
        url, context = "http://x/1/orders", "00-000000000000000000000000000000a0-0000000000000001-01"
        message = {
            "MessageId": "m-1",
            "ReceiptHandle": "handle",
            "Body": "x",
            "MessageAttributes": {"traceparent": {"StringValue": context, "DataType": "String"}},
        }
        with Stubber(client) as stub:
            stub.add_response("send_message", {"MessageId": "m-1"})
            stub.add_response("receive_message", {"Messages": [message]})
            stub.add_response("delete_message", {})
            stub.add_response("receive_message", {})
            client.send_message(QueueUrl=url, MessageBody="x")
            for received in client.receive_message(QueueUrl=url)["Messages"]:
                client.delete_message(QueueUrl=url, ReceiptHandle=received["ReceiptHandle"])
            client.receive_message(QueueUrl=url)
    finally:
        instrumentor.uninstrument()


RECORDINGS: dict[str, Callable[[TracerProvider], None]] = {
    "pika": pika,
    "confluent_kafka": confluent,
    "boto3sqs": boto3sqs,
}


def spans_of(play: Callable[[TracerProvider], None]) -> Any:
    """The request that an exporter would send of what ``play`` did, with even times."""
    exporter = InMemorySpanExporter()
    resource = Resource({"service.name": "shop"})
    provider = TracerProvider(resource=resource, id_generator=_Numbered(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    play(provider)
    spans = exporter.get_finished_spans()
    moments = sorted({moment for span in spans for moment in (span.start_time, span.end_time)})
    even = {moment: BEGIN + place * 1_000_000 for place, moment in enumerate(moments)}
    request = encode_spans(spans)
    for scope in request.resource_spans[0].scope_spans:
        for span in scope.spans:
            span.start_time_unix_nano = even[span.start_time_unix_nano]
            span.end_time_unix_nano = even[span.end_time_unix_nano]
            for event in span.events:
                event.time_unix_nano = span.end_time_unix_nano
                for pair in [one for one in event.attributes if one.key == "exception.stacktrace"]:
                    event.attributes.remove(pair)
    return request


def main() -> None:
    """Write every recording anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, play in RECORDINGS.items():
        recorded = json.loads(json_format.MessageToJson(spans_of(play)))
        (FOLDER / f"{name}.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
