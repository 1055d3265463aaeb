"""Spans as applications send them, and receivers to send them to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collectors.receive.joins import Joins
from collectors.receive.memory import Memory
from collectors.receive.rows import COLUMNS
from collectors.receive.spans import SpanReader
from collectors.receive.told import Told
from collectors.settings import CollectSettings
from lake.store import Lake
from tests.collectors.support import running
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

BEGIN = 1_780_000_000_000_000_000
SEND, PROCESS, RECEIVE = "send", "process", "receive"
KINDS = {"send": 4, "create": 4, "publish": 4, "process": 5, "receive": 3, "settle": 3}
ROOT = Path(__file__).parents[3]


def context(trace: int, span: int) -> str:
    """A message's identity, where its producer's context is one."""
    return f"{trace:032x}{span:016x}"


def add(
    request: Any,
    operation: str,
    span: int,
    *,
    trace: int = 1,
    parent: int = 0,
    remote: bool | None = None,
    links: Sequence[tuple[int, int]] = (),
    at: float = 0,
    took: float = 1,
    kind: int | None = None,
    error: str | None = None,
    **attributes: Any,
) -> None:
    """Add a span to ``request``. ``at`` and ``took`` are milliseconds; attributes have ``__`` for dots."""
    if not request.resource_spans:
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "shop"
        resource.scope_spans.add()
    made = (
        request.resource_spans[0]
        .scope_spans[0]
        .spans.add(
            trace_id=trace.to_bytes(16, "big"),
            span_id=span.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"",
            kind=KINDS[operation] if kind is None else kind,
            start_time_unix_nano=BEGIN + int(at * 1_000_000),
            end_time_unix_nano=BEGIN + int((at + took) * 1_000_000),
            flags={None: 0, False: 0x100, True: 0x300}[remote],
        )
    )
    for linked_trace, linked_span in links:
        made.links.add(trace_id=linked_trace.to_bytes(16, "big"), span_id=linked_span.to_bytes(8, "big"))
    if error is not None:
        made.status.code, made.status.message = 2, error
    told = {"messaging__system": "nats", "messaging__destination__name": "orders"}
    told |= {"messaging__operation__type": operation} | attributes
    for name, value in told.items():
        if value is None:
            continue
        pair = made.attributes.add(key=name.replace("__", "."))
        if isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value


def request_of(*spans: tuple[Any, ...]) -> Any:
    """A request with ``spans``, each (operation, span id, options)."""
    request = ExportTraceServiceRequest()
    for operation, span, *options in spans:
        add(request, operation, span, **(options[0] if options else {}))
    return request


def reader(most: int = 1000) -> SpanReader:
    """A reader that remembers nothing yet."""
    return SpanReader(Memory(1000), Joins(), most)


def read(request: Any, by: SpanReader | None = None) -> Told:
    """What ``request`` tells."""
    from collectors.receive import decode

    by = by or reader()
    told = by.sends(decode.protobuf(request.SerializeToString()))
    by.rest(told)
    return told


def named(told: Told) -> list[dict[str, Any]]:
    """The events of ``told`` by column, times in milliseconds since the beginning."""
    rows = []
    for row in told.rows:
        one = dict(zip(COLUMNS, row, strict=False))
        for name in ("enqueued_at", "occurred_at"):
            moment = one.pop(name)
            one[name.replace("_at", "_ms")] = None if moment is None else (moment - BEGIN // 1000) / 1000
        rows.append(one)
    return rows


def some(index: int, messages: int = 20) -> Any:
    """A request of ``messages`` sends and their processings, different for each ``index``."""
    request = ExportTraceServiceRequest()
    for number in range(messages):
        trace = (index << 32) + number + 1
        add(request, "send", 2 * number + 1, trace=trace, sojourn__tenant=f"t{number % 3}")
        add(request, "process", 2 * number + 2, trace=trace, parent=2 * number + 1, remote=True, at=5)
    return request


@dataclass
class Receiving:
    """A receiver that runs."""

    root: Path
    grpc_port: int
    http_port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Its HTTP address."""
        return f"{self.scheme}://127.0.0.1:{self.http_port}"

    def rows(self, table: str = "message_events") -> list[dict[str, Any]]:
        """What is in the lake."""
        return list(Lake(self.root).read(table).to_pylist())

    def answers(self) -> bool:
        """Whether it listens."""
        try:
            httpx.get(self.url, timeout=2, verify=False)
        except httpx.TransportError:
            return False
        return True


def settings(**receive: Any) -> CollectSettings:
    """Settings of a receiver on free ports."""
    grpc_port, http_port = free_ports(2)
    values = {"enabled": True, "grpc_port": grpc_port, "http_port": http_port, **receive}
    return CollectSettings.model_validate({"receive": values, "flush_interval": 0.02})


@contextmanager
def receiving(root: Path, **receive: Any) -> Iterator[Receiving]:
    """A receiver in a thread of this process, ended in order."""
    chosen = settings(**receive)
    one = Receiving(root, chosen.receive.grpc_port, chosen.receive.http_port)
    one.scheme = "https" if chosen.receive.tls else "http"
    with running(chosen, root) as thread:
        wait_until(lambda: one.answers() or not thread.is_alive(), "the receiver to listen")
        yield one


_CHILD = """
import signal, sys, threading
from pathlib import Path
from collectors.lean import spare_memory
spare_memory()
from collectors.run import run
from collectors.settings import CollectSettings
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run(CollectSettings.model_validate_json(sys.argv[1]), Path(sys.argv[2]), stop)
"""


def start(chosen: CollectSettings, root: Path) -> subprocess.Popen[bytes]:
    """A receiver in a process of its own."""
    return subprocess.Popen([sys.executable, "-c", _CHILD, chosen.model_dump_json(), str(root)], cwd=ROOT)
