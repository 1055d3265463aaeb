"""RESP2, the wire format of Redis, without any I/O.

A sampler sends tens of thousands of small commands a second. This parser takes a third of the processor time that the
client library needs for the same replies (``make bench-collectors`` shows both), and knows all of RESP2:
https://redis.io/docs/latest/develop/reference/protocol-spec/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from lake.errors import SojournError

#: One command: its name and arguments.
Command = tuple[bytes | str | int, ...]
#: What the server answers: int, bytes, None, a list of answers, or a Refusal.
Answer = Any


class Refusal(SojournError):
    """The server's error reply to one command; ``code`` is its first word, as in WRONGTYPE."""

    def __init__(self, message: str) -> None:
        self.code = message.split(" ", 1)[0]
        super().__init__(message)


class NotRedis(SojournError):
    """What arrived is not RESP2."""


def pack(commands: Iterable[Command]) -> bytes:
    """``commands`` as the server reads them."""
    parts: list[bytes] = []
    add = parts.append
    for command in commands:
        add(b"*%d\r\n" % len(command))
        for argument in command:
            add(b"$%d\r\n%b\r\n" % (len(argument), argument) if isinstance(argument, bytes) else _word(argument))
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _word(argument: str | int) -> bytes:
    """An argument that is not a key: names of commands, limits and the time come again with every queue."""
    data = str(argument).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def checked(answers: Sequence[Answer]) -> Sequence[Answer]:
    """``answers``; the first Refusal among them is raised."""
    for answer in answers:
        if isinstance(answer, Refusal):
            raise answer
    return answers


class _Incomplete(Exception):
    """The rest of a reply is still to come."""


class Parser:
    """Turns bytes as they arrive into whole replies."""

    def __init__(self) -> None:
        self._buffer = b""
        self._position = 0

    def feed(self, data: bytes) -> list[Answer]:
        """The replies that are whole now. NotRedis if the bytes make none."""
        self._buffer = self._buffer[self._position :] + data if self._position < len(self._buffer) else data
        self._position = 0
        replies: list[Answer] = []
        while self._position < len(self._buffer):
            start = self._position
            try:
                replies.append(self._reply())
            except _Incomplete:
                self._position = start
                break
            except (ValueError, RecursionError) as error:
                raise NotRedis(f"an answer that is not Redis': {error}") from None
        return replies

    @property
    def held(self) -> int:
        """Bytes of a reply that is not whole yet."""
        return len(self._buffer) - self._position

    def _reply(self) -> Answer:
        buffer = self._buffer
        end = buffer.find(b"\r\n", self._position)
        if end < 0:
            raise _Incomplete
        kind, line = buffer[self._position : self._position + 1], buffer[self._position + 1 : end]
        self._position = end + 2
        if kind == b":":
            return int(line)
        if kind == b"$":
            return self._bulk(int(line))
        if kind == b"*":
            length = int(line)
            return None if length < 0 else [self._reply() for _ in range(length)]
        if kind == b"+":
            return line
        if kind == b"-":
            return Refusal(line.decode(errors="replace"))
        raise ValueError(f"it begins with {kind!r}")

    def _bulk(self, length: int) -> bytes | None:
        if length < 0:
            return None
        begin, end = self._position, self._position + length
        if len(self._buffer) < end + 2:
            raise _Incomplete
        self._position = end + 2
        return self._buffer[begin:end]
