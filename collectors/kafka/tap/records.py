"""Consumed records as columns: what the tap needs of each, and nothing more."""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from brokers.tenants import Message, needs, tenant_of
from brokers.texts import loads
from collectors.kafka.tap.settings import TapTopic

Place = tuple[str, int]  # topic, partition

_LOG_APPEND_TIME = 2  # librdkafka's RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one partition, in order. ``stamps`` are microseconds, null where Kafka has none."""

    offsets: pa.Array  # int64
    stamps: pa.Array  # int64?
    tenants: pa.Array  # string?
    by_broker: pa.Array  # bool: the broker stamped it

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def first(self) -> int:
        """The first offset."""
        return int(self.offsets[0].as_py())

    @property
    def last(self) -> int:
        """The last offset."""
        return int(self.offsets[-1].as_py())

    def between(self, low: int, high: int) -> Records:
        """Those with ``low`` ≤ offset < ``high``."""
        start, end = self._place(low), self._place(high)
        if start == 0 and end == len(self):
            return self
        cut = slice(start, end)
        return Records(self.offsets[cut], self.stamps[cut], self.tenants[cut], self.by_broker[cut])

    def _place(self, offset: int) -> int:
        if not len(self) or offset <= self.first:
            return 0
        if offset > self.last:
            return len(self)
        return bisect_left(range(len(self)), offset, key=lambda index: self.offsets[index].as_py())


@dataclass(slots=True)
class _Columns:
    offsets: list[int] = field(default_factory=list)
    stamps: list[int | None] = field(default_factory=list)
    tenants: list[str | None] = field(default_factory=list)
    by_broker: list[bool] = field(default_factory=list)


_pauses = 0
_pausing = threading.Lock()


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep Python from looking for cycles meanwhile: for work that makes tens of thousands of objects, none in a cycle.

    Each pass over them would find nothing: nine tenths of the time that reading Kafka took, measured.
    """
    global _pauses
    with _pausing:
        _pauses += 1
        gc.disable()
    try:
        yield
    finally:
        with _pausing:
            _pauses -= 1
            if _pauses == 0:
                gc.enable()


TenantOf = Callable[[Any], str | None]


def gather(messages: Iterable[Any], whose: Mapping[str, TenantOf]) -> dict[Place, Records]:
    """Confluent's messages (no errors among them) by place; ``whose`` tells, for each topic, whose a message is."""
    found: defaultdict[Place, _Columns] = defaultdict(_Columns)
    for message in messages:
        topic = message.topic()
        columns = found[topic, message.partition()]
        kind, milliseconds = message.timestamp()
        columns.offsets.append(message.offset())
        columns.stamps.append(milliseconds * 1000 if kind and milliseconds >= 0 else None)
        columns.by_broker.append(kind == _LOG_APPEND_TIME)
        columns.tenants.append(whose[topic](message))
    return {place: _records(columns) for place, columns in found.items()}


def tenant_finder(settings: TapTopic) -> TenantOf:
    """How a record of the topic names its tenant: by the topic's rules."""
    rules, queue = settings.tenant, settings.queue_name
    documents = needs(rules, "json")

    def told(message: Any) -> str | None:
        # Of a header that is there several times, the first that says something.
        headers = {name: value for name, value in reversed(message.headers() or ()) if value}
        document = _document(message.value()) if documents else None
        return tenant_of(rules, Message(queue, _text(message.key()), headers, document))

    return told if rules else lambda message: None


def join(parts: Sequence[Records]) -> Records:
    """``parts``, which follow each other, as one."""
    if len(parts) == 1:
        return parts[0]
    return Records(
        pa.concat_arrays([part.offsets for part in parts]),
        pa.concat_arrays([part.stamps for part in parts]),
        pa.concat_arrays([part.tenants for part in parts]),
        pa.concat_arrays([part.by_broker for part in parts]),
    )


def _records(columns: _Columns) -> Records:
    return Records(
        pa.array(columns.offsets, pa.int64()),
        pa.array(columns.stamps, pa.int64()),
        pa.array(columns.tenants, pa.string()),
        pa.array(columns.by_broker, pa.bool_()),
    )


def _text(key: bytes | str | None) -> str | None:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else key


def _document(value: bytes | str | None) -> Any:
    try:
        return loads(value or b"null")
    except (ValueError, RecursionError):
        return None
