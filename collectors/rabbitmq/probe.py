"""How long the broker takes to confirm a publish: the signal of its congestion that no statistic tells.

A thread of its own publishes a tiny message each second, with publisher confirms, to a queue of its own: exclusive, so
that it goes with the connection; at most one message long; named ``sojourn.probe.…``. Nothing of the user's is touched.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections import deque
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import pika.exceptions

from collectors.rabbitmq.names import OURS
from collectors.rabbitmq.settings import RabbitBroker, amqp_port
from collectors.samples import METRIC_NAMES, Sample, unread
from lake.errors import SojournError, first_line
from sojourn.client.backoff import doubled

log = logging.getLogger(__name__)

_NOT_A_QUEUE = "this row is Sojourn's probe of the broker, not a queue"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_PATIENCE = 3.0  # for the thread to end


class Probe:
    """Started and stopped by its owner; what it found is read by :meth:`sample`, which never waits for the broker."""

    def __init__(self, broker: RabbitBroker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._latencies: deque[float] = deque(maxlen=broker.probe.window)
        self._trouble: str | None = "it is not connected yet"
        self._blocked: str | None = None
        self._published_at: float | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._channel: Any = None
        self._queue = ""

    def start(self) -> None:
        """Begin, or go on, probing."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._stopping,), name=f"{OURS}:{self._broker.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and with it the connection and its queue."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            connection.ioloop.add_callback_threadsafe(lambda: self._hang_up(connection))
        thread.join(_PATIENCE)

    def sample(self, now: int) -> Sample:
        """A row named ``sojourn.probe``: the median latency, or why there is none; ``now`` in microseconds.

        Its state is ``running``, ``blocked`` while the broker takes no messages (low on memory or disk), and
        ``unconfirmed`` while a confirmation takes longer than the probe's timeout.
        """
        with self._lock:
            latencies, trouble, blocked = list(self._latencies), self._trouble, self._blocked
            waiting = 0.0 if self._published_at is None else time.monotonic() - self._published_at
        if trouble is not None:
            return unread(OURS, now, f"the probe cannot publish: {trouble}")
        state, value, reason = "running", None, "nothing is confirmed yet"
        if blocked is not None:
            state, reason = "blocked", f"the broker blocks publishers: {blocked}"
        elif waiting > self._broker.probe.timeout:
            state, reason = "unconfirmed", f"the broker has confirmed nothing for {waiting:.0f} s"
        elif latencies:
            value = median(latencies)
        missing = dict.fromkeys(METRIC_NAMES, _NOT_A_QUEUE)
        for told in ("state", "staleness_seconds"):
            del missing[told]
        if value is None:
            missing["publish_latency_seconds"] = reason
        else:
            del missing["publish_latency_seconds"]
        return Sample(OURS, now, state=state, publish_latency_seconds=value, unavailable=missing)

    # From here on everything runs in the probe's own thread.

    def _run(self, stopping: threading.Event) -> None:
        failures = 0
        while not stopping.is_set():
            try:
                self._converse(stopping)
            except SojournError as error:
                self._lost(str(error))
            except Exception as error:  # whatever the client library raises, the sampler goes on
                self._lost(first_line(error))
            if self._latencies:
                failures = 0
            with self._lock:
                self._latencies.clear()
                self._blocked = self._published_at = None
            failures += 1
            stopping.wait(doubled(failures, _FIRST_PAUSE, _LONGEST_PAUSE))

    def _lost(self, why: str) -> None:
        if self._queue:
            why = why.replace(self._queue, OURS)  # its name is another each time: the reason is the same
        with self._lock:
            if self._trouble != why and not self._stopping.is_set():
                log.warning("probe of broker %s: %s", self._broker.name, why)
            self._trouble = why

    def _converse(self, stopping: threading.Event) -> None:
        """One connection from its beginning to its end."""
        connection = pika.SelectConnection(
            self._parameters(),
            on_open_callback=self._opened,
            on_open_error_callback=self._closed,
            on_close_callback=self._closed,
        )
        connection.add_on_connection_blocked_callback(self._set_blocked)
        connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(connection, None))
        self._connection = connection
        try:
            if not stopping.is_set():
                connection.ioloop.start()
        finally:
            self._connection = self._channel = None
            connection.ioloop.close()

    def _parameters(self) -> Any:
        broker = self._broker
        parts = urlsplit(broker.amqp_url or "")
        host, options = parts.hostname or "", dict[str, Any]()
        if parts.scheme == "amqps":
            options["ssl_options"] = pika.SSLOptions(broker.tls.context() or ssl.create_default_context(), host)
        if broker.user is not None and broker.password is not None:
            secret = broker.password.read(f"the password of broker {broker.name!r}")
            options["credentials"] = pika.PlainCredentials(broker.user, secret, erase_on_connect=True)
        return pika.ConnectionParameters(
            host,
            amqp_port(broker.amqp_url or ""),
            broker.amqp_vhost,
            connection_attempts=1,
            socket_timeout=broker.probe.timeout,
            stack_timeout=broker.probe.timeout,
            heartbeat=30,
            client_properties={"connection_name": "sojourn probe"},
            **options,
        )

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        self._queue = f"{OURS}.{uuid4().hex}"
        channel.queue_declare(
            self._queue, exclusive=True, auto_delete=True, arguments={"x-max-length": 1}, callback=self._declared
        )

    def _declared(self, _: Any) -> None:
        self._channel.confirm_delivery(self._confirmed, callback=self._begin)

    def _begin(self, _: Any) -> None:
        with self._lock:
            self._trouble = None
        self._publish()

    def _publish(self) -> None:
        """One message, unless the last is still unconfirmed; then again after the interval."""
        channel, connection = self._channel, self._connection
        if channel is None or not channel.is_open:
            return
        if self._published_at is None:
            with self._lock:
                self._published_at = time.monotonic()
            channel.basic_publish("", self._queue, b"")
        connection.ioloop.call_later(self._broker.probe.interval, self._publish)

    def _confirmed(self, _: Any) -> None:
        with self._lock:
            if self._published_at is not None:
                self._latencies.append(time.monotonic() - self._published_at)
                self._published_at = None

    def _set_blocked(self, _: Any, frame: Any) -> None:
        with self._lock:
            self._blocked = None if frame is None else str(frame.method.reason)

    def _channel_closed(self, channel: Any, reason: Exception) -> None:
        self._lost(first_line(reason))
        self._hang_up(channel.connection)

    def _closed(self, connection: Any, reason: Exception) -> None:
        if not isinstance(reason, pika.exceptions.ConnectionClosedByClient):  # why we hung up is known already
            self._lost(first_line(reason))
        connection.ioloop.stop()

    def _hang_up(self, connection: Any) -> None:
        if connection.is_open:
            connection.close()
        elif not connection.is_closing:
            connection.ioloop.stop()
