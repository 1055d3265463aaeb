"""A collector that a test commands: it records, refuses, hangs, and dies in the middle; over real HTTP."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import sojourn

#: What a request may meet, beside a status: an answer after so long, or none at all.
HANG, DIE_BEFORE, DIE_AFTER = "hang", "die before it is taken", "die after it is taken"
Step = int | str | tuple[int, dict[str, str]]


class Collector:
    """Takes each (sender, sequence) once, as the real one does. ``script`` is what the next requests meet; then 200."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.script: list[Step] = []
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.taken: dict[tuple[str, int], dict[str, Any]] = {}
        self.released = threading.Event()
        self.most_bytes = most_bytes
        self.rejects: list[dict[str, Any]] = []
        self.port = 0
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._connections: set[socket.socket] = set()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every event that was taken, in the order of its batches."""
        return [event for body in list(self.taken.values()) for event in body["events"]]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [row for body in list(self.taken.values()) for row in body["summaries"]]

    @property
    def polls(self) -> list[dict[str, Any]]:
        return [row for body in list(self.taken.values()) for row in body["polls"]]

    @property
    def publishes(self) -> list[dict[str, Any]]:
        return [row for body in list(self.taken.values()) for row in body["publishes"]]

    def counts(self) -> Counter[str]:
        """How many events of each type were told of, single or summarised."""
        counts = Counter(event["event_type"] for event in self.events)
        for row in self.summaries:
            for kind in ("enqueued", "received", "completed", "failed", "dead_lettered", "expired", "sidelined"):
                counts[kind] += row[kind]
        return +counts

    def start(self) -> None:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                collector._connections.add(self.connection)

            def do_POST(self) -> None:
                collector._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go away, connections and all."""
        assert self._server is not None
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            _cut(connection)
        self._connections.clear()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers.get("Content-Encoding") == "gzip":
            raw = gzip.decompress(raw)
        body = json.loads(raw)
        with self._lock:
            step: Step = self.script.pop(0) if self.script else 200
            self.requests.append(body)
            self.paths.append(handler.path)
            self.headers.append(dict(handler.headers))
        if step == HANG:
            self.released.wait(30)
            step = DIE_BEFORE
        if step == DIE_BEFORE:
            return _cut(handler.connection)
        status, headers = step if isinstance(step, tuple) else (step, {})
        if status == 200 and self.most_bytes is not None and len(raw) > self.most_bytes:
            status = 413
        if status in (200, DIE_AFTER):
            with self._lock:
                self.taken.setdefault((body.get("sender", ""), body.get("sequence", len(self.taken))), body)
        if status == DIE_AFTER:
            return _cut(handler.connection)
        answer = json.dumps({"accepted": len(body.get("events", ())), "rejected": self.rejects}).encode()
        handler.send_response(int(status))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@contextmanager
def collecting(**options: Any) -> Iterator[Collector]:
    collector = Collector(**options)
    try:
        yield collector
    finally:
        collector.stop()


def recorder_to(collector: Collector, **options: Any) -> sojourn.Recorder:
    """A recorder that sends there soon."""
    return sojourn.Recorder(collector.url, **{"broker": "rabbitmq", "flush_interval": 0.02, **options})
