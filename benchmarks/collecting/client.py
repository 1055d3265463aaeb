"""What a call of the client costs its application, while the client's own thread encodes and sends.

Paced: 20,000 calls a second from one thread, with the recorder sending to a real HTTP server in another process. Flat
out: calls one after the other, until the buffer overflows and summarises. Baseline: appending a tuple to a bounded
deque, timed the same way; for orientation, an OpenTelemetry span with the same attributes, started and ended. The time
of reading the clock, which is inside every figure, is not taken off.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sojourn
from benchmarks.figures import Figure

PACED_PER_SECOND = 20_000
#: A server that takes everything; apart, so that its work is not in the application's interpreter.
_SINK = """
import socketserver, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def measure(scale: float) -> Iterator[Figure]:
    """The figures of the issue's table first; then what is for orientation."""
    seconds = 5 * scale
    identities = [f"message-{number}" for number in range(1000)]
    bounded: deque[tuple[object, ...]] = deque(maxlen=32_768)

    def append(number: int) -> None:
        bounded.append(("received", "orders", identities[number % 1000], "acme", 1, None))

    with _sink() as url, sojourn.Recorder(url, broker="redis", worker="bench") as recorder:

        def call(number: int) -> None:
            recorder.received("orders", identities[number % 1000], tenant="acme", attempt=1)

        paced(call, 1)  # a warm connection, warm caches
        calm, baseline = paced(call, seconds), paced(append, seconds)
        sent = recorder.stats()
        yield Figure("client_call_p50_us", quantile(calm, 0.5), "µs", quantile(baseline, 0.5))
        yield Figure("client_call_p99_us", quantile(calm, 0.99), "µs", quantile(baseline, 0.99))
        yield Figure("client_call_p999_us", quantile(calm, 0.999), "µs", quantile(baseline, 0.999))
        yield Figure("client_call_conflated", sent.conflated, "events")
        calls = round(1_000_000 * scale)
        flat, flat_baseline = flat_out(call, calls), flat_out(append, calls)
        yield Figure("client_call_flat_out_p50_us", quantile(flat, 0.5), "µs", quantile(flat_baseline, 0.5))
        yield Figure("client_call_flat_out_p99_us", quantile(flat, 0.99), "µs", quantile(flat_baseline, 0.99))
        recorder.flush(30)
        stats = recorder.stats()
        yield Figure("client_flat_out_summarised_share", stats.summarised / stats.recorded, "1")
        yield Figure("client_lost", stats.recorded - stats.sent - stats.summarised, "events")
    yield from _span(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Figure("client_benchmark_rss_mb", peak, "MB")


def paced(call: Callable[[int], None], seconds: float) -> list[int]:
    """Nanoseconds of each call, at :data:`PACED_PER_SECOND`: in bursts of 20, with sleep between, as servers work."""
    took: list[int] = []
    now = time.perf_counter_ns
    burst, started = 20, time.perf_counter()
    number = 0
    while (elapsed := time.perf_counter() - started) < seconds:
        if number >= elapsed * PACED_PER_SECOND:
            time.sleep(burst / PACED_PER_SECOND / 2)
            continue
        for _ in range(burst):
            before = now()
            call(number)
            took.append(now() - before)
            number += 1
    return took


def flat_out(call: Callable[[int], None], calls: int) -> list[int]:
    """Nanoseconds of each call, one after the other."""
    took = [0] * calls
    now = time.perf_counter_ns
    for number in range(calls):
        before = now()
        call(number)
        took[number] = now() - before
    return took


def quantile(nanoseconds: list[int], q: float) -> float:
    """The ``q``-quantile, in microseconds."""
    ordered = sorted(nanoseconds)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] / 1000


def _span(seconds: float) -> Iterator[Figure]:
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    except ImportError:
        return

    class Nowhere(SpanExporter):  # type: ignore[misc]
        def export(self, spans: object) -> object:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    tracer = provider.get_tracer("bench")

    def call(number: int) -> None:
        attributes = {
            "messaging.system": "redis",
            "messaging.destination.name": "orders",
            "messaging.message.id": f"message-{number}",
            "sojourn.tenant": "acme",
            "sojourn.attempt": 1,
        }
        tracer.start_span("process orders", attributes=attributes).end()

    took = paced(call, min(2.0, seconds))
    yield Figure("opentelemetry_span_p50_us", quantile(took, 0.5), "µs")
    yield Figure("opentelemetry_span_p99_us", quantile(took, 0.99), "µs")
    provider.shutdown()


@contextmanager
def _sink() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()
