"""The columns of lifecycle events as arrays, with what every metric is made of: times, ages, attempts."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.histogram import BUCKETS_PER_OCTAVE, SMALLEST, ZERO_INDEX
from lake.tables import EVENT_TYPES
from spark_analytics.transforms.groups import Codes, Groups, encoded, numbered
from spark_analytics.transforms.lists import Integers, one_chunk

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: What the analytics read of message_events.
EVENT_COLUMNS = (
    "broker",
    "queue",
    "subscriber",
    "tenant",
    "message_id",
    "event_type",
    "attempt",
    "enqueued_at",
    "occurred_at",
    "processing_seconds",
)
#: Column of the key → what stands for null.
KEY = {"broker": "", "queue": "", "subscriber": "", "tenant": "unknown"}

MICROS = 1_000_000
#: A processing time that is longer, or no number, tells nothing: it would poison a sum for good.
LONGEST_SECONDS = 1e12
_TYPE_NUMBERS = {event_type: number for number, event_type in enumerate(EVENT_TYPES)}
_OTHER_TYPE = len(EVENT_TYPES)


class Events:
    """Events of one micro-batch, or of a piece of it: ``rows`` has EVENT_COLUMNS."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows.unify_dictionaries()
        self.occurred, _ = _micros(rows.column("occurred_at"))
        self.enqueued, self.enqueued_known = _micros(rows.column("enqueued_at"))
        self.attempt, self.attempt_known = _integers(rows.column("attempt"))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def names(self) -> dict[str, tuple[Codes, pa.Array]]:
        """Each column of KEY as numbers, and the names they stand for."""
        return {name: encoded(self.rows.column(name), default) for name, default in KEY.items()}

    @cached_property
    def groups(self) -> Groups:
        """By KEY and the second since :attr:`first_second`."""
        seconds = self.occurred // MICROS - self.first_second
        keys = [self.names[name][0] for name in KEY]
        return numbered((*keys, Codes(seconds, int(seconds.max(initial=0)) + 1)))

    @cached_property
    def first_second(self) -> int:
        """The unix second of the earliest event; 0 where there is none."""
        return int(self.occurred.min() // MICROS) if len(self) else 0

    @cached_property
    def type_number(self) -> Integers:
        """Each event's place in EVENT_TYPES; beyond the last for a type that we do not know."""
        codes, names = encoded(self.rows.column("event_type"), "")
        places = [_TYPE_NUMBERS.get(name, _OTHER_TYPE) for name in names.to_pylist()]
        return np.array([*places, _OTHER_TYPE], np.int64).take(codes.numbers)

    def of_type(self, *event_types: str) -> Flags:
        """Which events are of one of ``event_types``."""
        chosen = np.zeros(_OTHER_TYPE + 1, bool)
        chosen[[_TYPE_NUMBERS[event_type] for event_type in event_types]] = True
        return chosen[self.type_number]

    def attempt_is(self, least: int, most: int | None = None) -> Flags:
        """Which events tell an attempt from ``least`` to ``most`` (none: any above)."""
        told: Flags = self.attempt_known & (self.attempt >= least)
        return told if most is None else told & (self.attempt <= most)

    @cached_property
    def of_kind(self) -> dict[str, Flags]:
        """AGE_KINDS → which events tell an age of that kind, if their message's enqueue time is known."""
        received = self.of_type("received")
        return {
            "first_attempt": received & self.attempt_is(1, 1),
            "retry": received & self.attempt_is(2),
            "completion": self.of_type("completed"),
        }

    @cached_property
    def age(self) -> Floats:
        """Seconds since the message was enqueued, at least 0; meaningless where that is not known."""
        age: Floats = np.maximum(self.occurred - self.enqueued, 0) / MICROS
        return age

    @cached_property
    def skewed(self) -> Flags:
        """Where the age was below zero: the clocks that stamped the two times disagree."""
        return self.enqueued_known & (self.occurred < self.enqueued)

    @cached_property
    def processing(self) -> tuple[Integers, Floats]:
        """The rows that tell how long an attempt took, and those seconds, at least 0."""
        chunk = one_chunk(self.rows.column("processing_seconds"))
        seconds: Floats = pc.fill_null(chunk, np.nan).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            told = np.flatnonzero(self.of_type("completed", "failed") & (seconds < LONGEST_SECONDS))
        return told, np.maximum(seconds[told], 0.0)


def bucket_indices(seconds: Floats) -> Integers:
    """:func:`lake.histogram.bucket_index` of each of ``seconds``."""
    with np.errstate(divide="ignore"):
        indices = np.ceil(np.log2(seconds) * BUCKETS_PER_OCTAVE) - 1
    return np.where(seconds < SMALLEST, ZERO_INDEX, indices).astype(np.int64)


def _micros(column: pa.ChunkedArray) -> tuple[Integers, Flags]:
    return _integers(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))


def _integers(column: pa.ChunkedArray) -> tuple[Integers, Flags]:
    """The values, 0 where they are null, and which are not."""
    chunk = one_chunk(column)
    if chunk.null_count == 0:
        return chunk.to_numpy().astype(np.int64, copy=False), np.ones(len(chunk), bool)
    known = chunk.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(chunk, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False), known
