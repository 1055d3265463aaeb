"""Posting to a collector: one kept connection, bounded waiting, bounded answers, and what an answer means."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from sojourn.client.token import authorization

#: Longer than the collector's own ``answer_seconds``: it says itself when a request is to come again.
TIMEOUT_SECONDS = 35.0
#: A connection that was idle for longer is opened anew: servers close theirs after 5 seconds or more.
IDLE_SECONDS = 3.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024
#: Below this, compressing costs more than it saves.
GZIP_FROM_BYTES = 1024
MAX_RETRY_AFTER = 300.0


class Unreachable(Exception):
    """The collector gave no answer; whether it took the batch is not known."""


class Verdict(Enum):
    """What becomes of a batch after an answer."""

    ACCEPTED = "accepted"
    SPLIT = "too large: send it in two"
    LATER = "try again"
    MISCONFIGURED = "try again slowly, for a person has to fix something"
    REFUSED = "malformed: never send it again"


@dataclass(frozen=True, slots=True)
class Answer:
    """``retry_after`` is the pause that the server asks for, in seconds; 0 where it asks for none."""

    verdict: Verdict
    status: int
    retry_after: float = 0.0
    body: dict[str, Any] = field(default_factory=dict)


class Post:
    """Posts JSON to one address. Used by one thread, except for :meth:`abort`."""

    def __init__(self, url: str, path: str, token: str | None, timeout: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https address")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + path
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **authorization(token)}
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    def send(self, body: bytes) -> Answer:
        """Post ``body``. Raises Unreachable where no answer came."""
        headers = self._headers
        if len(body) >= GZIP_FROM_BYTES:
            body, headers = gzip.compress(body, 1), headers | {"Content-Encoding": "gzip"}
        if self._connection is not None and time.monotonic() - self._used > IDLE_SECONDS:
            self.close()
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._kind(self._host, self._port, timeout=self._timeout)
            connection.request("POST", self._path, body, headers)
            response = connection.getresponse()
            content = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        self._used = time.monotonic()
        if len(content) > MAX_ANSWER_BYTES or response.will_close:
            self.close()
        return Answer(
            verdict_of(response.status),
            response.status,
            retry_after(response.headers.get("Retry-After"), time.time()),
            _object(content),
        )

    def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """End a request under way, from another thread: it then raises Unreachable."""
        connection = self._connection
        if connection is not None and (sock := connection.sock) is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def verdict_of(status: int) -> Verdict:
    """What a status means for the batch that it answers."""
    if 200 <= status < 300:
        return Verdict.ACCEPTED
    if status == 413:
        return Verdict.SPLIT
    if status in (400, 422):
        return Verdict.REFUSED
    if status in (408, 425, 429) or status >= 500:
        return Verdict.LATER
    return Verdict.MISCONFIGURED  # 401, 403, 404, a redirect: the address or the token is not right


def retry_after(header: str | None, now: float) -> float:
    """The seconds that ``Retry-After`` asks for, given as such or as a date; at most :data:`MAX_RETRY_AFTER`."""
    if not header:
        return 0.0
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, TypeError):
            return 0.0
    return min(MAX_RETRY_AFTER, seconds) if seconds > 0 else 0.0


def _object(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
