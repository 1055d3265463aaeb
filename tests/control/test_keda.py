"""KEDA's external scaler, asked by a gRPC client that writes and reads the published protocol byte by byte."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from alerts.control import build
from alerts.control.advisor import MOST_OLD, Capacity
from alerts.control.keda.answers import METRIC
from alerts.control.keda.server import MOST_BYTES, serving
from alerts.control.settings import CapacitySettings, ControlSettings
from alerts.laws.capacity import Advice
from alerts.run import _scaling
from alerts.settings import AlertSettings
from lake.clock import Clock
from lake.errors import UserError
from lake.web.server import listen
from tests.control.conftest import World
from tests.support.waiting import PATIENCE

QUEUE = {"broker": "nats", "queue": "orders"}
SECONDS = 10 * PATIENCE


def text(number: int, value: str | bytes) -> bytes:
    """A field of length-delimited wire type."""
    value = value.encode() if isinstance(value, str) else value
    length, size = b"", len(value)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def ref(**metadata: str) -> bytes:
    """ScaledObjectRef { name = 1, namespace = 2, map<string, string> scalerMetadata = 3 }"""
    entries = b"".join(text(3, text(1, key) + text(2, value)) for key, value in metadata.items())
    return text(1, "shop") + text(2, "default") + entries


def metrics_request(name: str, **metadata: str) -> bytes:
    """GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2 }"""
    return text(1, ref(**metadata)) + text(2, name)


class Keda:
    """What KEDA does, over a channel of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def ask(self, method: str, request: bytes, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
        call = self.channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")
        answer: bytes = call(request, timeout=SECONDS, metadata=headers, wait_for_ready=True)
        return answer

    def stream(self, request: bytes) -> Any:
        call = self.channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive")
        return call(request, timeout=SECONDS, wait_for_ready=True)

    def refused(self, method: str, request: bytes, headers: tuple[tuple[str, str], ...] = ()) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.ask(method, request, headers)
        error: Any = caught.value
        return error.code().name, error.details()


class Scaled:
    """A control part that serves KEDA as the alert process does, over a world."""

    def __init__(self, world: World, control: Any, keda: Keda) -> None:
        self.world, self.control, self.keda = world, control, keda

    def look(self, seconds: int = 6) -> None:
        self.world.advance(seconds)
        self.control.advisor.step(self.world.now, self.world.query)


@pytest.fixture
def start(world: World, tmp_path: Path) -> Iterator[Callable[..., Scaled]]:
    with ExitStack() as stack:

        def make(token: str | None = None, **changes: Any) -> Scaled:
            world.now = datetime.now(UTC)
            one = CapacitySettings(**QUEUE | {"drain_seconds": 50} | changes)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            settings = AlertSettings(control=ControlSettings(policies=(), capacity=(one,), keda_port=port))
            clock = Clock(lambda: world.now, lambda: world.now.timestamp())
            control = build(settings.control, tmp_path / "lake", tmp_path / "state", token=token, clock=clock)
            stack.callback(control.close)
            stack.enter_context(_scaling(control, settings, clock))
            keda = Keda(port)
            stack.callback(keda.channel.close)
            return Scaled(world, control, keda)

        yield make


def test_keda_is_told_as_many_replicas_as_consumers_are_advised(start: Callable[..., Scaled]) -> None:
    scaled = start()
    scaled.look()
    spec = text(1, text(1, METRIC) + b"\x10\x01" + b"\x19" + struct.pack("<d", 1.0))
    assert scaled.keda.ask("GetMetricSpec", ref(**QUEUE)) == spec
    # 60 + 7 × 10 a second, and 520 + 7 × 2 to be gone in 50 s, at 0.1 s each: 15, as `GET /v1/capacity` has it
    value = text(1, text(1, METRIC) + b"\x10\x0f" + b"\x19" + struct.pack("<d", 15.0))
    assert scaled.keda.ask("GetMetrics", metrics_request(METRIC, **QUEUE)) == value
    assert scaled.keda.ask("IsActive", ref(**QUEUE)) == b"\x08\x01"


def test_a_queue_that_needs_nobody_is_not_active_and_a_stream_tells_each_change_once() -> None:
    there: list[int | None] = [3]

    def ask() -> list[Capacity]:
        return [Capacity(("nats", "orders", ""), datetime.now(UTC), Advice(there[0], None, None, None, "why"), 1)]

    listener = listen("127.0.0.1", 0)
    with serving(ask, listener, None):
        keda = Keda(listener.getsockname()[1])
        told = keda.stream(ref(**QUEUE))
        assert next(told) == b"\x08\x01"
        there[0] = 7  # as active as before
        assert keda.ask("IsActive", ref(**QUEUE)) == b"\x08\x01"
        there[0] = None  # nothing is known: nothing is told, and the stream lasts
        assert keda.refused("IsActive", ref(**QUEUE))[0] == "UNAVAILABLE"
        there[0] = 0
        assert next(told) == b"", "proto3 writes no false"
        assert keda.ask("IsActive", ref(**QUEUE)) == b""
        there[0] = 1
        assert next(told) == b"\x08\x01"
        keda.channel.close()


def test_what_is_not_known_is_an_error_upon_which_the_fallback_counts(start: Callable[..., Scaled]) -> None:
    scaled = start()
    assert scaled.keda.refused("GetMetrics", metrics_request(METRIC, **QUEUE))[0] == "UNAVAILABLE"
    scaled.look()
    scaled.world.advance((MOST_OLD + timedelta(seconds=1)).total_seconds())
    code, reason = scaled.keda.refused("IsActive", ref(**QUEUE))
    assert code == "UNAVAILABLE" and "not known" in reason


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("IsActive", ref(), "INVALID_ARGUMENT"),
        ("IsActive", ref(broker="nats", queue="bills"), "NOT_FOUND"),
        ("IsActive", ref(**QUEUE, subscriber="other"), "NOT_FOUND"),
        ("IsActive", b"\xff\xff\xff", "INVALID_ARGUMENT"),
        ("IsActive", ref(queue="q" * 2 * MOST_BYTES), "RESOURCE_EXHAUSTED"),
        ("GetMetrics", metrics_request("s0-other", **QUEUE), "INVALID_ARGUMENT"),
        ("GetMetrics", b"", "INVALID_ARGUMENT"),
        ("StreamMetricSpec", ref(**QUEUE), "UNIMPLEMENTED"),  # KEDA asks GetMetricSpec instead
    ],
)
def test_a_question_without_an_answer_is_refused_with_its_status(
    start: Callable[..., Scaled], method: str, request_: bytes, code: str
) -> None:
    scaled = start()
    scaled.look()
    assert scaled.keda.refused(method, request_)[0] == code
    assert scaled.keda.ask("IsActive", ref(**QUEUE)) == b"\x08\x01", "and the next one is answered"


def test_with_a_token_each_call_brings_it_in_its_metadata_or_as_a_header(start: Callable[..., Scaled]) -> None:
    scaled = start(token="s3cret")
    scaled.look()
    ask, refused = scaled.keda.ask, scaled.keda.refused
    for request in (ref(**QUEUE), ref(**QUEUE, tokenFromEnv="wrong"), ref(**QUEUE, tokenFromEnv="")):
        assert refused("IsActive", request)[0] == "UNAUTHENTICATED"
    assert refused("GetMetricSpec", ref(**QUEUE))[0] == "UNAUTHENTICATED"
    assert refused("GetMetrics", metrics_request(METRIC, **QUEUE))[0] == "UNAUTHENTICATED"
    right = {**QUEUE, "tokenFromEnv": "s3cret"}
    assert refused("IsActive", ref(**right), (("authorization", "Bearer wrong"),))[0] == "UNAUTHENTICATED"
    assert ask("IsActive", ref(**right)) == b"\x08\x01"
    assert ask("GetMetrics", metrics_request(METRIC, **right))
    assert ask("IsActive", ref(**QUEUE), (("authorization", "Bearer s3cret"),)) == b"\x08\x01"
    with pytest.raises(grpc.RpcError) as caught:
        next(scaled.keda.stream(ref(**QUEUE)))
    error: Any = caught.value
    assert error.code().name == "UNAUTHENTICATED"


def test_what_is_no_http2_never_reaches_the_server(start: Callable[..., Scaled]) -> None:
    scaled = start()
    scaled.look()
    with socket.create_connection(("127.0.0.1", scaled.keda.port), timeout=SECONDS) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    assert scaled.keda.ask("IsActive", ref(**QUEUE)) == b"\x08\x01"


def test_a_port_that_is_taken_is_a_clear_error(start: Callable[..., Scaled]) -> None:
    scaled = start()
    settings = AlertSettings(control=ControlSettings(keda_port=scaled.keda.port))
    with pytest.raises(UserError, match="keda_port"):
        _scaling(scaled.control, settings, Clock())
