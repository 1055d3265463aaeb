"""Spans a second into durable bronze: the receiver on one core, its senders on another.

A whole receiver runs as ``sojourn`` runs it, bound to one core; the sender keeps requests of 512 spans in flight over
gRPC, as four dozen exporters of the OpenTelemetry SDK would, and counts those that were answered. Half the spans are
sends, half processings with ten attributes each; a processing makes two events. The baseline parses the very same
requests, walks over their spans' attributes, and does nothing with them: spans for each second of processor time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.figures import Figure
from lake.store import Lake
from tests.support.ports import free_ports

SPANS_IN_REQUEST = 512
IN_FLIGHT = 96
SECONDS = 12.0
_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_RECEIVER = """
import os, signal, sys, threading
from pathlib import Path
os.sched_setaffinity(0, {int(sys.argv[3])})
from collectors.lean import spare_memory
spare_memory()
from collectors.run import run
from collectors.settings import CollectSettings
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run(CollectSettings.model_validate_json(sys.argv[1]), Path(sys.argv[2]), stop)
"""


def measure(scale: float) -> Iterator[Figure]:
    """The rate at which spans become durable, beside the rate of parsing alone; the receiver's memory."""
    count = max(1, int(SECONDS * 200 * scale))
    bodies = [request(index).SerializeToString() for index in range(count)]
    baseline = _parsing(bodies[: max(1, count // 8)])
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        root, (port, other) = Path(folder) / "lake", free_ports(2)
        settings = {"receive": {"enabled": True, "grpc_port": port, "http_port": other}}
        command = [sys.executable, "-c", _RECEIVER, json.dumps(settings), str(root), str(cores[0])]
        receiver = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        try:
            os.sched_setaffinity(0, {cores[-1]})
            process = psutil.Process(receiver.pid)
            rate, busy = asyncio.run(_send(port, bodies, process))
            used = process.memory_info().rss / 1e6
        finally:
            os.sched_setaffinity(0, set(cores))
            receiver.terminate()
            receiver.wait(30)
        written = Lake(root).read("message_events", columns=["event_id"]).num_rows
    expected = count * (SPANS_IN_REQUEST // 2) * 3
    assert written == expected, f"{written} events in the lake instead of {expected}"
    yield Figure("otlp_spans_per_second", rate, "spans/s", baseline)
    yield Figure("otlp_spans_per_cpu_second", busy, "spans/s", baseline)
    yield Figure("otlp_receiver_rss_mb", used, "MB")


def _parsing(bodies: list[bytes]) -> float:
    spans, began = 0, time.process_time()
    for body in bodies:
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    spans += 1
                    for pair in span.attributes:
                        _ = pair.key, pair.value.string_value
    return spans / (time.process_time() - began)


async def _send(port: int, bodies: list[bytes], process: psutil.Process) -> tuple[float, float]:
    """Spans that were answered, for each second and for each second of processor time that the receiver took.

    The second figure is what a core of its own would do: others may use this one meanwhile. The first tenth of the
    requests warms up.
    """
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
        export = channel.unary_unary(_METHOD)
        warm = len(bodies) // 10
        await _all(export, bodies[:warm])
        began, worked = time.perf_counter(), sum(process.cpu_times()[:2])
        await _all(export, bodies[warm:])
        spans = (len(bodies) - warm) * SPANS_IN_REQUEST
        return spans / (time.perf_counter() - began), spans / (sum(process.cpu_times()[:2]) - worked)


async def _all(export: Any, bodies: list[bytes]) -> None:
    left = iter(bodies)

    async def sender() -> None:
        for body in left:
            await export(body, timeout=60)

    await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))


def request(index: int) -> Any:
    """One request of a service: sends and processings of messages of 20 queues and 50 tenants."""
    chance = random.Random(index)
    made = ExportTraceServiceRequest()
    resource_spans = made.resource_spans.add()
    _put(resource_spans.resource.attributes, "service.name", f"service-{index % 20}")
    _put(resource_spans.resource.attributes, "telemetry.sdk.language", "python")
    spans = resource_spans.scope_spans.add().spans
    now = time.time_ns()
    for number in range(SPANS_IN_REQUEST // 2):
        queue, tenant = f"orders-{chance.randrange(20)}", f"tenant-{chance.randrange(50)}"
        sent = spans.add(trace_id=chance.randbytes(16), span_id=chance.randbytes(8), kind=4, flags=0x100)
        sent.parent_span_id = chance.randbytes(8)
        took = spans.add(trace_id=sent.trace_id, span_id=chance.randbytes(8), kind=5, flags=0x300)
        took.parent_span_id = sent.span_id
        for span, operation, start in ((sent, "send", now + number), (took, "process", now + 2_000_000)):
            span.name = f"{operation} {queue}"
            span.start_time_unix_nano, span.end_time_unix_nano = start, start + 1_000_000
            _put(span.attributes, "messaging.system", "rabbitmq")
            _put(span.attributes, "messaging.destination.name", queue)
            _put(span.attributes, "messaging.operation.type", operation)
            _put(span.attributes, "messaging.operation.name", operation)
            _put(span.attributes, "messaging.message.id", f"m-{index}-{number}")
            _put(span.attributes, "messaging.client.id", "client-1")
            _put(span.attributes, "messaging.rabbitmq.destination.routing_key", queue)
            _put(span.attributes, "server.address", "broker.internal")
            _put(span.attributes, "server.port", 5672)
            _put(span.attributes, "sojourn.tenant", tenant)
    return made


def _put(attributes: Any, key: str, value: str | int) -> None:
    pair = attributes.add(key=key)
    if isinstance(value, int):
        pair.value.int_value = value
    else:
        pair.value.string_value = value
