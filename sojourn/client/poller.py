"""The long poll that brings new limits: one connection, bounded answers, back-off that never ends in giving up."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from sojourn.client.token import authorization
from sojourn.client.wire import MAX_BYTES, MalformedAnswer, Update, parse

#: How much longer than the long poll itself an answer may take.
GRACE_SECONDS = 5.0
#: Names of queues that a request holds (characters).
MAX_QUERY = 2048


class Unreachable(Exception):
    """The limits API gave no answer of use; the application goes on as before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``update`` is None where nothing changed; ``retry_after`` is the pause that the server asks for (seconds).

    ``said_at`` is the instant, on the poller's clock, before which the server cannot have said it later: leases count
    from it. However long an answer was on its way, or the process stood still, no lease grows by that.
    """

    update: Update | None
    retry_after: float
    said_at: float


class Poller:
    """Asks one limits API. Used by one thread, except for :meth:`close`."""

    def __init__(
        self,
        url: str,
        token: str | None,
        wait_seconds: float,
        clock: Callable[[], float],
        broker: str | None = None,
        queues: Collection[str] = (),
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https address")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        place = [("broker", broker)] if broker is not None else []
        place += [("queue", queue) for queue in sorted(queues)]
        query = urlencode(place, errors="replace")
        # A server takes no headers of any length: where there are many queues, all limits come, and are chosen here.
        self._path = (
            f"{parts.path.rstrip('/')}/v1/limits?{query if len(query) < MAX_QUERY else ''}&wait={wait_seconds:g}"
        )
        self._clock = clock
        self._timeout = wait_seconds + GRACE_SECONDS
        self._headers = {"Accept": "application/json"} | authorization(token)
        self._etag: str | None = None
        self._version = 0
        self._connection: http.client.HTTPConnection | None = None

    def poll(self) -> Answer:
        """One long poll. Raises Unreachable, or MalformedAnswer."""
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._kind(self._host, self._port, timeout=self._timeout)
            headers = self._headers | ({"If-None-Match": self._etag} if self._etag else {})
            asked_at = self._clock()
            connection.request("GET", f"{self._path}&since={self._version}", headers=headers)
            response = connection.getresponse()
            body = response.read(MAX_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        if len(body) > MAX_BYTES:
            self.close()
            raise MalformedAnswer(f"more than {MAX_BYTES} bytes")
        retry_after = _seconds(response.headers.get("Retry-After"))
        if response.status == 304:
            return Answer(None, retry_after, asked_at)
        if response.status != 200:
            raise Unreachable(f"status {response.status}")
        update = parse(body, self._version)
        self._etag, self._version = response.headers.get("ETag"), update.version or 0
        arrived_at, waited = self._clock(), update.waited_seconds
        return Answer(update, retry_after, arrived_at if waited is None else min(arrived_at, asked_at + waited))

    def close(self) -> None:
        """Drop the connection; a poll under way ends with Unreachable."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)  # closing alone would not wake a thread that reads
        connection.close()


def _seconds(header: str | None) -> float:
    try:
        return min(60.0, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0
