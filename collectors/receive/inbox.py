"""Requests that wait for the next commit: bounded in number and bytes, handed from the servers to the committer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from collectors.receive.status import Code

#: What a request's body is: OTLP as protobuf or as JSON, or events of our client.
Format = Literal["protobuf", "json", "events"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the sender is told. ``rejected`` counts spans refused of an OTLP request; ``body`` answers the client.

    ``status`` is HTTP's where the code alone does not say it.
    """

    code: Code
    message: str = ""
    rejected: int = 0
    body: bytes = b""
    retry_seconds: int | None = None
    status: int | None = None


@dataclass(slots=True, eq=False)
class Request:
    """One request of ``peer``, and how to answer it; ``answer`` may be called from any thread, once."""

    format: Format
    body: bytes
    answer: Callable[[Answer], None]
    peer: str = ""
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.body)


class Inbox:
    """Requests that were not answered yet, whether they wait or are being committed.

    Of the room there is no peer has more than three quarters, but for one request, which it may always have.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._waiting: list[Request] = []
        self._count = self._bytes = 0
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._open = False
        self._changed = threading.Condition()

    @property
    def pending(self) -> int:
        """Requests that were not answered yet."""
        return self._count

    @property
    def is_open(self) -> bool:
        """Whether requests are let in."""
        return self._open

    def open(self) -> None:
        """Let requests in."""
        with self._changed:
            self._open = True

    def offer(self, request: Request) -> bool:
        """Take ``request`` for the next commit; False, and not taken, where there is no room or it is closed."""
        with self._changed:
            if not self._open or not self._has_room(request):
                return False
            self._waiting.append(request)
            self._count += 1
            self._bytes += request.size
            self._counts[request.peer] += 1
            self._sizes[request.peer] += request.size
            self._changed.notify()
            return True

    def _has_room(self, request: Request) -> bool:
        if self._count >= self._most or self._bytes + request.size > self._most_bytes:
            return False
        count = self._counts[request.peer]  # of a peer that is not there a Counter says 0, and keeps nothing
        if not count:
            return True
        size = self._sizes[request.peer] + request.size
        return 4 * count < 3 * self._most and 4 * size <= 3 * self._most_bytes

    def take(self, wait: float) -> list[Request]:
        """All requests that wait, as soon as there is one; none after ``wait`` seconds."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(wait)
            taken, self._waiting = self._waiting, []
            return taken

    def answered(self, requests: list[Request]) -> None:
        """``requests`` were answered: there is room again."""
        with self._changed:
            self._count -= len(requests)
            self._bytes -= sum(request.size for request in requests)
            for request in requests:
                self._counts[request.peer] -= 1
                self._sizes[request.peer] -= request.size
                if not self._counts[request.peer]:
                    del self._counts[request.peer], self._sizes[request.peer]

    def close(self) -> None:
        """Let nothing in any more."""
        with self._changed:
            self._open = False
