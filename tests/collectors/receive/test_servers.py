"""What senders are told: real exporters of the OpenTelemetry SDK, and requests that no exporter makes."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from collectors.receive.inbox import Answer, Inbox, Request
from collectors.run import run
from lake.errors import UserError
from tests.collectors.receive.support import Receiving, receiving, request_of, settings, some

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    """A receiver that all tests here share; each counts on its own queue or table."""
    with receiving(tmp_path_factory.mktemp("receive") / "lake", max_request_bytes=200_000) as one:
        yield one


def _spans(queue: str) -> Any:
    """A message sent and processed, as the SDK records it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop")
    told = {"messaging.system": "kafka", "messaging.destination.name": queue}
    with tracer.start_as_current_span("send", kind=trace.SpanKind.PRODUCER, attributes=told) as sent:
        link = trace.Link(sent.get_span_context())
    with tracer.start_as_current_span("process", kind=trace.SpanKind.CONSUMER, attributes=told, links=[link]):
        pass
    return exporter.get_finished_spans()


@pytest.mark.parametrize("way", ["grpc", "grpc gzip", "http", "http gzip"])
def test_what_an_exporter_of_the_sdk_was_told_to_be_taken_is_in_the_lake(receiver: Receiving, way: str) -> None:
    exporter: SpanExporter
    if way.startswith("grpc"):
        packing = grpc.Compression.Gzip if "gzip" in way else grpc.Compression.NoCompression
        exporter = GrpcExporter(endpoint=f"http://127.0.0.1:{receiver.grpc_port}", insecure=True, compression=packing)
    else:
        packed = Compression.Gzip if "gzip" in way else Compression.NoCompression
        exporter = HttpExporter(endpoint=f"{receiver.url}/v1/traces", compression=packed)
    assert exporter.export(_spans(way)) is SpanExportResult.SUCCESS
    rows = {row["event_type"]: row for row in receiver.rows() if row["queue"] == way}
    exporter.shutdown()
    assert set(rows) == {"enqueued", "received", "completed"}
    assert len({row["message_id"] for row in rows.values()}) == 1
    assert rows["received"]["enqueued_at"] == rows["enqueued"]["occurred_at"]
    assert rows["received"]["attempt"] == 1


def test_json_is_taken_with_hexadecimal_ids(receiver: Receiving) -> None:
    request = json.loads(json_format.MessageToJson(request_of(("send", 1, {"messaging__destination__name": "json"}))))
    span = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["traceId"], span["spanId"] = f"{0xABC:032x}", f"{1:016x}"
    answer = httpx.post(f"{receiver.url}/v1/traces", json=request)
    assert (answer.status_code, answer.json()) == (200, {})
    assert [row["trace_id"] for row in receiver.rows() if row["queue"] == "json"] == [f"{0xABC:032x}"]


def test_spans_that_are_refused_are_counted_in_a_partial_success_and_kept(receiver: Receiving) -> None:
    request = request_of(
        ("send", 1, {"messaging__destination__name": "partial"}),
        ("process", 2, {"sojourn__outcome": "vanished"}),
    )
    answer = httpx.post(f"{receiver.url}/v1/traces", content=request.SerializeToString(), headers=PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 1)
    assert "sojourn.outcome" in partial.error_message
    assert any("vanished" in row["raw"] for row in receiver.rows("rejected_records"))


def test_a_malformed_request_is_refused_for_good_and_kept(receiver: Receiving) -> None:
    answer = httpx.post(f"{receiver.url}/v1/traces", content=b"\x0a\xffnonsense", headers=PROTOBUF)
    assert answer.status_code == 400
    with grpc.insecure_channel(f"127.0.0.1:{receiver.grpc_port}") as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(EXPORT)(b"\x0a\xffrubbish", timeout=10)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    raw = [row["raw"] for row in receiver.rows("rejected_records")]
    assert any("nonsense" in one for one in raw) and any("rubbish" in one for one in raw)


def test_an_oversized_request_is_refused_packed_or_not(receiver: Receiving) -> None:
    long = b"\x00" * 300_000
    for content, headers in ((long, {}), (gzip.compress(long), {"content-encoding": "gzip"})):
        answer = httpx.post(f"{receiver.url}/v1/traces", content=content, headers={**PROTOBUF, **headers})
        assert answer.status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(30):
            yield b"\x00" * 10_000

    with suppress(httpx.WriteError):  # refused while it was still being sent
        assert httpx.post(f"{receiver.url}/v1/traces", content=pieces(), headers=PROTOBUF).status_code == 413
    for packing in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        with grpc.insecure_channel(f"127.0.0.1:{receiver.grpc_port}") as channel:
            with pytest.raises(grpc.RpcError) as raised:
                channel.unary_unary(EXPORT)(long, timeout=10, compression=packing)
            assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/v1/metrics", b"", PROTOBUF, 404),
        ("/v1/logs", b"", PROTOBUF, 404),
        ("/v1/traces", b"", {"content-type": "text/plain"}, 415),
        ("/v1/traces", b"{", {"content-type": "application/json"}, 400),
        ("/v1/traces", b"x", {**PROTOBUF, "content-encoding": "gzip"}, 400),
        (
            "/v1/traces",
            gzip.compress(b"", mtime=0) + gzip.compress(b"x", mtime=0),
            {**PROTOBUF, "content-encoding": "gzip"},
            400,
        ),
        ("/v1/traces", b"x", {**PROTOBUF, "content-encoding": "br"}, 415),
        ("/v1/events", b"[]", JSON, 400),
        ("/v1/events", b"[" * 100_000, JSON, 400),
        ("/v1/events", b"{}", {}, 415),
        ("/v1/events", b"{}", {"content-type": "text/plain"}, 415),
    ],
)
def test_what_is_not_served_is_answered_clearly(
    receiver: Receiving, path: str, content: bytes, headers: dict[str, str], status: int
) -> None:
    assert httpx.post(receiver.url + path, content=content, headers=headers).status_code == status


def test_metrics_over_grpc_are_not_implemented(receiver: Receiving) -> None:
    method = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
    with grpc.insecure_channel(f"127.0.0.1:{receiver.grpc_port}") as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(method)(b"", timeout=10)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_that_is_sent_again_is_taken_and_changes_nothing(receiver: Receiving) -> None:
    body = some(77).SerializeToString()
    for _ in range(3):
        answer = httpx.post(f"{receiver.url}/v1/traces", content=body, headers=PROTOBUF)
        assert answer.status_code == 200
    traces = {f"{(77 << 32) + number + 1:032x}" for number in range(20)}
    assert sum(row["trace_id"] in traces for row in receiver.rows()) == 60


def test_polls_that_spans_tell_are_added_up_in_samples(receiver: Receiving) -> None:
    for span, count in ((1, 0), (2, 5), (2, 5)):
        told = {"messaging__destination__name": "polled", "messaging__batch__message_count": count}
        body = request_of(("receive", span, {**told, "trace": 99})).SerializeToString()
        httpx.post(f"{receiver.url}/v1/traces", content=body, headers=PROTOBUF).raise_for_status()
    samples = [row for row in receiver.rows("queue_samples") if row["queue"] == "polled"]
    assert max((row["polls_total"], row["empty_polls_total"]) for row in samples) == (2, 1)
    assert all(row["depth"] is None and dict(row["unavailable"])["depth"] for row in samples)


def test_without_the_token_nothing_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIVE_TOKEN", "s3cret")
    body = request_of(("send", 1)).SerializeToString()
    with receiving(tmp_path / "lake", token={"env": "RECEIVE_TOKEN"}) as one:
        for given in (None, "Bearer wrong", "s3cret", "Bearer s3cret\u00e9".encode().decode("latin-1")):
            headers = PROTOBUF | ({} if given is None else {"authorization": given.encode("latin-1", "replace")})
            assert httpx.post(f"{one.url}/v1/traces", content=body, headers=headers).status_code == 401
            assert httpx.post(f"{one.url}/v1/events", content=b"{}", headers=headers).status_code == 401
        with grpc.insecure_channel(f"127.0.0.1:{one.grpc_port}") as channel:
            with pytest.raises(grpc.RpcError) as raised:
                channel.unary_unary(EXPORT)(body, timeout=10)
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert one.rows() == []
            channel.unary_unary(EXPORT)(body, timeout=10, metadata=[("authorization", "Bearer s3cret")])
        headers = {"authorization": "Bearer s3cret"}
        exporter = HttpExporter(endpoint=f"{one.url}/v1/traces", headers=headers)
        assert exporter.export(_spans("q")) is SpanExportResult.SUCCESS
        exporter.shutdown()
        assert len(one.rows()) == 4


def test_over_tls_both_doors_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)  # the machine's own would be trusted instead of the exporter's
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    tls = {"certificate": str(certificate), "key": str(key)}
    with receiving(tmp_path / "lake", tls=tls) as one:
        http = HttpExporter(endpoint=f"https://localhost:{one.http_port}/v1/traces", certificate_file=str(certificate))
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        rpc = GrpcExporter(endpoint=f"https://localhost:{one.grpc_port}", credentials=credentials)
        for exporter in (http, rpc):
            assert exporter.export(_spans("q")) is SpanExportResult.SUCCESS
            exporter.shutdown()
        assert len(one.rows()) == 6


def test_no_more_is_pending_than_may_be() -> None:
    inbox, answers = Inbox(2, 100), list[Answer]()
    requests = [Request("protobuf", b"x" * 40, answers.append, f"10.0.0.{number}") for number in range(3)]
    assert not inbox.offer(requests[0])  # it is not open yet
    inbox.open()
    assert [inbox.offer(one) for one in requests] == [True, True, False]
    taken = inbox.take(0.0)
    assert not inbox.offer(requests[2])  # what is being committed counts, too
    inbox.answered(taken)
    assert inbox.offer(requests[2]) and not inbox.offer(Request("protobuf", b"x" * 61, answers.append))
    inbox.close()
    assert not inbox.offer(requests[0])


def test_no_peer_has_all_the_room_for_what_is_pending_and_each_may_have_one_request() -> None:
    def of(peer: str, size: int) -> Request:
        return Request("protobuf", b"x" * size, lambda answer: None, peer)

    inbox = Inbox(8, 1_000)
    inbox.open()
    many = [of("10.0.0.1", 1) for _ in range(20)]
    assert [inbox.offer(one) for one in many].count(True) == 6
    assert inbox.offer(of("10.0.0.2", 900)) and inbox.offer(of("10.0.0.3", 1))
    inbox.answered(inbox.take(0.0))
    large = [of("10.0.0.1", 300) for _ in range(4)]
    assert [inbox.offer(one) for one in large].count(True) == 2
    assert inbox.offer(of("10.0.0.2", 250))
    inbox.answered(inbox.take(0.0))
    assert inbox.offer(of("10.0.0.1", 1_000)) and not inbox.offer(of("10.0.0.2", 1))


def test_a_port_that_is_taken_is_the_users_to_mend(tmp_path: Path, receiver: Receiving) -> None:
    for taken in ({"http_port": receiver.http_port}, {"grpc_port": receiver.grpc_port}):
        with pytest.raises(UserError, match="cannot listen"):
            run(settings(**taken), tmp_path / "lake", threading.Event())


def test_a_port_of_0_is_not_offered(tmp_path: Path) -> None:
    with receiving(tmp_path / "lake", grpc_port=0) as one:
        body = request_of(("send", 1)).SerializeToString()
        assert httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    with pytest.raises(ValueError, match="both"):
        settings(grpc_port=0, http_port=0)


def test_another_host_needs_a_token() -> None:
    with pytest.raises(ValueError, match="token"):
        settings(host="0.0.0.0")
    assert settings(host="0.0.0.0", token={"env": "X"}).receive.host == "0.0.0.0"
    assert settings(host="::1").receive.token is None
