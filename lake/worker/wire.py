"""Frames between a worker and its parent, over two pipes: a JSON header, and Arrow IPC behind it where rows go along.

A frame is ``>IQ`` (the lengths of header and body in bytes), the header, the body. Nothing that arrives is trusted:
lengths are bounded before anything is allocated, and rows are validated before anybody reads them.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_LENGTHS = struct.Struct(">IQ")
MOST_HEADER = 16 * 1024 * 1024
#: A pipe takes this much at once; smaller pieces of a table are gathered up to it.
_GATHERED = 64 * 1024


class WireError(Exception):
    """The other side is gone (:class:`Closed`), silent for too long (:class:`Late`), or makes no sense."""


class Closed(WireError):
    """The other side has ended."""


class Late(WireError):
    """Nothing came, or was taken, before the deadline."""


class Wire:
    """One end of the two pipes. Belongs to one thread at a time.

    ``most`` bounds the bytes of a body that is accepted. Deadlines are those of ``time.monotonic``; None waits forever.
    """

    def __init__(self, reads: int, writes: int, *, most: int) -> None:
        self._reads, self._writes, self._most = reads, writes, most
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)

    def send(self, header: Mapping[str, Any], table: pa.Table | None = None, *, deadline: float | None = None) -> None:
        """Send one frame; raises Closed or Late."""
        text = json.dumps(header).encode()
        size = 0
        if table is not None:
            measured = pa.MockOutputStream()
            _write(table, measured)
            size = measured.size()
        sink = _Sink(self, deadline)
        sink.write(_LENGTHS.pack(len(text), size) + text)
        if table is not None:
            _write(table, pa.PythonFile(sink, mode="w"))
        sink.flush()

    def receive(self, *, deadline: float | None = None) -> tuple[dict[str, Any], pa.Table | None]:
        """The next frame; raises Closed, Late, or WireError for what is no frame of ours."""
        lengths = bytearray(_LENGTHS.size)
        self._fill(memoryview(lengths), deadline)
        header_length, body_length = _LENGTHS.unpack(lengths)
        if header_length > MOST_HEADER or body_length > self._most:
            raise WireError("a frame is larger than allowed")
        text = bytearray(header_length)
        self._fill(memoryview(text), deadline)
        try:
            header = json.loads(bytes(text))
        except (ValueError, RecursionError) as error:
            raise WireError("a frame's header is not JSON") from error
        if not isinstance(header, dict):
            raise WireError("a frame's header is not an object")
        if not body_length:
            return header, None
        body = pa.allocate_buffer(body_length)
        self._fill(memoryview(body).cast("B"), deadline)
        try:
            with pa.ipc.open_stream(body) as stream:
                table = stream.read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise WireError("a frame's body is not Arrow") from error
        return header, table

    def brings(self, until: float) -> bool:
        """Whether something comes, or the other side ends, until then."""
        try:
            _wait(self._reads, select.POLLIN, until)
        except Late:
            return False
        return True

    def write(self, data: memoryview, deadline: float | None) -> None:
        """All of ``data`` into the pipe."""
        while data:
            try:
                data = data[os.write(self._writes, data) :]
            except BlockingIOError:
                _wait(self._writes, select.POLLOUT, deadline)
            except OSError as error:
                raise Closed("the other side has ended") from error

    def _fill(self, room: memoryview, deadline: float | None) -> None:
        while room:
            try:
                count = os.readv(self._reads, [room])
            except BlockingIOError:
                _wait(self._reads, select.POLLIN, deadline)
                continue
            except OSError as error:
                raise Closed("the other side has ended") from error
            if not count:
                raise Closed("the other side has ended")
            room = room[count:]


class _Sink:
    """Where Arrow writes a table, piece by piece, straight into the pipe: no copy of the whole is made."""

    closed = False

    def __init__(self, wire: Wire, deadline: float | None) -> None:
        self._wire = wire
        self._deadline = deadline
        self._gathered = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        if len(self._gathered) + len(view) > _GATHERED:
            self.flush()
        if len(view) > _GATHERED:
            self._wire.write(view, self._deadline)
        else:
            self._gathered += view
        return len(view)

    def flush(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._wire.write(memoryview(gathered), self._deadline)

    def close(self) -> None:
        """The pipe stays open for the next frame."""

    def writable(self) -> bool:
        return True


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _wait(descriptor: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left = None if deadline is None else deadline - time.monotonic()
    if (left is not None and left <= 0) or not poll.poll(None if left is None else left * 1000):
        raise Late("the deadline has passed")
