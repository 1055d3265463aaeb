"""A member of a streams group (KIP-1071), as far as its coordinator sees one: no client of Python's is one."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Sequence

from brokers.kafka.link import Link
from brokers.kafka.wire.cluster import Node
from brokers.kafka.wire.codec import END, Request, array, text
from tests.collectors.kafka.reading import settings
from tests.support.kafka import KafkaServer
from tests.support.waiting import PATIENCE

_HEARTBEAT, _COMMIT = 88, 8
_NULL, _ABSENT, _NONE = b"\xff", b"\0", array(())


class StreamsMember:
    """One member of ``group``, whose topology reads ``sources``. Make it, :meth:`join`, and :meth:`close` it."""

    def __init__(self, server: KafkaServer, group: str, sources: Sequence[str]) -> None:
        broker = settings(server.bootstrap)
        self._link = Link(broker, Node("127.0.0.1", server.port), None)
        self._group, self._sources = group, sources
        self._name, self._epoch = str(uuid.uuid4()), 0
        self._owned: list[bytes] = []

    def close(self) -> None:
        """Say goodbye."""
        self._epoch = -1
        self.beat()
        self._link.close()

    def join(self) -> None:
        """Beat until there are tasks, and take them."""
        deadline = time.monotonic() + 20 * PATIENCE
        while not self._owned:
            assert time.monotonic() < deadline, "no tasks"
            self.beat()
            time.sleep(0.1)
        self.beat()

    def beat(self) -> None:
        """One heartbeat; the tasks that it brings are taken."""
        head = text(self._group) + text(self._name) + struct.pack(">ii", self._epoch, 0) + 2 * _ABSENT
        joining = self._epoch == 0
        topology = _NULL
        if joining:
            subtopology = text("0") + array(map(text, self._sources)) + 5 * _NONE + END
            topology = b"\1" + struct.pack(">i", 0) + array([subtopology]) + END
        tasks = array(self._owned) + 2 * _NONE
        process = text(self._name) + _NULL + _NONE + 2 * _ABSENT + b"\0"
        answer = self._link.ask(
            Request(_HEARTBEAT, 0, head + struct.pack(">i", 60_000) + topology + tasks + process + END)
        )
        answer.integer()
        error, said = answer.short(), answer.text()
        assert error == 0, f"{error}: {said}"
        self._name, self._epoch = answer.text(), answer.integer()
        answer.take(12)
        for _ in range(answer.count()):  # what is the matter
            answer.byte()
            answer.text()
            answer.tags()
        owned = []
        for _ in range(answer.count()):
            subtopology, partitions = answer.text(), answer.array(answer.integer)
            answer.tags()
            owned.append(text(subtopology) + array(struct.pack(">i", one) for one in partitions) + END)
        self._owned = owned or self._owned

    def commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit as this member does."""
        place = struct.pack(">iqi", partition, offset, -1) + text("") + END
        body = text(self._group) + struct.pack(">i", self._epoch) + text(self._name) + _ABSENT
        body += array([text(topic) + array([place]) + END]) + END
        answer = self._link.ask(Request(_COMMIT, 9, body))
        answer.integer()
        for _ in range(answer.count()):
            answer.text()
            for _ in range(answer.count()):
                answer.integer()
                error = answer.short()
                assert error == 0, error
                answer.tags()
            answer.tags()
