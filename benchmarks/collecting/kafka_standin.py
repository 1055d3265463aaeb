"""A stand-in for a Kafka broker of very many partitions: Kafka's protocol, and nothing behind it.

One process can hold no more real partitions than files and maps it may open (some 30,000), and to make them takes
minutes. What the sampler asks is answered as a broker would, byte for byte: every partition ends far away, its one
group has gone on by one since the last time that it was asked for, and each record is a batch of its own.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from brokers.kafka.wire.cluster import API_VERSIONS, METADATA
from brokers.kafka.wire.codec import END, Reader, array, blob, text, varint
from collectors.kafka.wire.groups import DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH
from collectors.kafka.wire.offsets import EARLIEST, FETCH, LIST_OFFSETS

GROUP = "readers"
_FAR = 1 << 40
_NONE, _NOTHING = array(()), struct.pack(">i", 0)
_BATCH = struct.Struct(">qiibIhiqqqhii")
_COMMITTED = np.dtype([("partition", ">i4"), ("offset", ">i8"), ("rest", "V8")])
_SPOKEN = {METADATA: 10, LIST_GROUPS: 5, DESCRIBE_GROUPS: 5, OFFSET_FETCH: 8, LIST_OFFSETS: 6, FETCH: 12}


class _Broker:
    def __init__(self, port: int, topics: int, partitions: int, size: int) -> None:
        self._names = [f"bench-{number:04}" for number in range(topics)]
        self._partitions, self._size, self._port, self._moved = partitions, size, port, 0
        self._metadata = self._all_metadata()
        places = np.zeros(partitions, _COMMITTED)
        places["partition"] = np.arange(partitions)
        places["rest"] = np.frombuffer(struct.pack(">iBhB", -1, 0, 0, 0) * partitions, "V8")
        self._committed = places

    def answer(self, api: int, asked: Reader) -> bytes:
        """The body of the answer to a request."""
        match api:
            case 18:
                versions = b"".join(struct.pack(">hhh", api, version, version) for api, version in _SPOKEN.items())
                return struct.pack(">hi", 0, len(_SPOKEN)) + versions
            case 3:
                return self._metadata
            case 16:
                group = text(GROUP) + text("consumer") + text("Empty") + text("classic") + END
                return _NOTHING + struct.pack(">h", 0) + array([group]) + END
            case 9:
                return self._offsets()
            case 2:
                return self._ends(asked)
            case 1:
                return self._fetched(asked)
        raise AssertionError(api)

    def _all_metadata(self) -> bytes:
        node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", self._port) + b"\0" + END
        places = array(
            struct.pack(">hiii", 0, number, 1, 0) + 2 * array([struct.pack(">i", 1)]) + _NONE + END
            for number in range(self._partitions)
        )
        told = (
            struct.pack(">h", 0) + text(name) + name.encode().ljust(16, b"x") + b"\0" + places + _NOTHING + END
            for name in self._names
        )
        return _NOTHING + array([node]) + text("cluster") + struct.pack(">i", 1) + array(told) + _NOTHING + END

    def _offsets(self) -> bytes:
        self._moved += 1
        self._committed["offset"] = self._moved
        places = varint(self._partitions + 1) + self._committed.tobytes()
        topics = array(text(name) + places + END for name in self._names)
        return _NOTHING + array([text(GROUP) + topics + struct.pack(">h", 0) + END]) + END

    @staticmethod
    def _ends(asked: Reader) -> bytes:
        asked.take(5)

        def topic() -> bytes:
            name, told = asked.text(), []
            for _ in range(asked.count()):
                partition, _, which, _ = struct.unpack(">iiqB", asked.take(17))
                told.append(struct.pack(">ihqqiB", partition, 0, -1, 0 if which == EARLIEST else _FAR, 0, 0))
            asked.tags()
            return text(name) + array(told) + END

        return _NOTHING + array(asked.array(topic)) + END

    def _fetched(self, asked: Reader) -> bytes:
        asked.take(25)
        now = int(time.time() * 1000) - 5000

        def batch(offset: int) -> bytes:
            record = bytes(self._size)
            length = _BATCH.size - 12 + len(record)
            return _BATCH.pack(offset, length, 0, 2, 0, 0, 0, now, now, -1, -1, -1, 1) + _record(record)

        def topic() -> bytes:
            name, told = asked.text(), []
            for _ in range(asked.count()):
                partition, _, offset, _, _, room, _ = struct.unpack(">iiqiqiB", asked.take(33))
                one = batch(offset)
                bytes_ = (one * (room // len(one) + 1))[: max(room, len(one))]
                told.append(struct.pack(">ihqqqBi", partition, 0, _FAR, -1, 0, 0, -1) + blob(bytes_) + END)
            asked.tags()
            return text(name) + array(told) + END

        return _NOTHING + struct.pack(">hi", 0, 0) + array(asked.array(topic)) + END


def _record(value: bytes) -> bytes:
    """A record of about ``value``'s length; its length, as the batch's header, is padded to that of ``value``."""
    body = b"\0\0\0\1" + _zigzag(len(value) - 12) + bytes(len(value) - 12) + b"\0"
    record = _zigzag(len(body)) + body
    return record.ljust(len(value), b"\0")


def _zigzag(value: int) -> bytes:
    return varint(value << 1)


def _serve(listener: socket.socket, broker: _Broker) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_talk, args=(client, broker), daemon=True).start()


def _talk(client: socket.socket, broker: _Broker) -> None:
    stream = client.makefile("rb")
    while head := stream.read(4):
        asked = Reader(stream.read(struct.unpack(">i", head)[0]))
        api, _, number = asked.short(), asked.short(), asked.integer()
        asked.take(asked.short())
        old = api == API_VERSIONS
        if not old:
            asked.tags()
        body = struct.pack(">i", number) + (b"" if old else END) + broker.answer(api, asked)
        client.sendall(struct.pack(">i", len(body)) + body)


def _run(ready: Callable[[Any], None], topics: int, partitions: int, size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    broker = _Broker(port, topics, partitions, size)
    ready(port)
    _serve(listener, broker)


@contextmanager
def standing_in(topics: int, partitions: int, size: int) -> Iterator[str]:
    """Its address, while it runs as a process of its own; ``size``: bytes of a record."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_run, args=(theirs.send, topics, partitions, size), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()
