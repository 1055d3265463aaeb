"""Partials as each consumer lives them: rows of the table → keys by number and columns of NumPy.

What is enqueued for no named subscriber is enqueued for all of them; a queue that nobody has consumed from yet has its
unnamed consumer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.formula import compiled
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.arrays import Array, Integers
from spark_analytics.fold.cells import UNKNOWN
from spark_analytics.fold.step import MEASURES
from spark_analytics.transforms.groups import encoded, numbered
from spark_analytics.transforms.lists import entries

#: (queue, subscriber, tenant)
Name = tuple[str, str, str]

COUNTED = ("received", "completed", "failed", "dead_lettered", "expired", "sidelined", "delayed")
_SOURCES = {"finished": compiled(FORMULAS["finished"]), "busy": compiled(FORMULAS["busy"])}
_FIRST_SECOND = compiled(FORMULAS["first_second"])
#: The columns of partials that are read.
COLUMNS = (
    "broker", "queue", "subscriber", "tenant", "bucket_start", "bucket_seconds", "newest_occurred_at",
    "enqueued", *COUNTED, "started", "retries", "finished_unreceived",
    "processing_count", "processing_sum", "processing_histogram", "backlog_cells",
)  # fmt: skip


LEVELS = ("broker", "bucket_start", "bucket_seconds")


class Consumers:
    """Who consumes each queue. One that nobody has consumed from yet has its unnamed consumer."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, bool]] = {}

    def note(self, queue: str, subscriber: str, consumes: bool) -> bool:
        """Remember what was seen; whether that changes who consumes a queue that was known already."""
        seen = self._seen.setdefault(queue, {})
        known = seen.get(subscriber)
        if known or (known is False and not consumes):
            return False
        before = self.of(queue)
        seen[subscriber] = consumes or subscriber != ""
        return bool(before) and before != self.of(queue)

    def of(self, queue: str) -> frozenset[str]:
        """The consumers of ``queue``."""
        seen = self._seen.get(queue, {})
        consuming = frozenset(name for name, consumes in seen.items() if consumes)
        return consuming or frozenset(seen)


class Distinct:
    """The distinct values of some text columns of rows together; ``of_row`` tells for each row which of them it has."""

    def __init__(self, rows: pa.Table, columns: tuple[str, ...]) -> None:
        codes, self._texts = zip(*(encoded(rows.column(name), "") for name in columns), strict=True)
        self._groups = numbered(codes)
        self.of_row = self._groups.of_row

    def __len__(self) -> int:
        return len(self._groups)

    def column(self, place: int) -> pa.Array:
        """One of the columns, a value for each distinct one."""
        return self._texts[place].take(pa.array(self._groups.keys[place]))

    @cached_property
    def distinct(self) -> list[Any]:
        """The values, as tuples."""
        return list(zip(*(self.column(place).to_pylist() for place in range(len(self._texts))), strict=True))

    @cached_property
    def row_of(self) -> Integers:
        """Of each distinct value a row that has it."""
        found = np.empty(len(self), np.int64)
        found[self.of_row] = np.arange(len(self.of_row))
        return found


@dataclass(slots=True)
class Lived:
    """Rows of partials of one broker in NumPy; lists are flat, each entry with its row."""

    names: Distinct  # of Name
    places: Distinct  # of (queue, subscriber)
    second: Integers
    width: Integers
    counts: Array
    work: Array
    consumes: Array
    cell_row: Integers
    cell_second: Integers
    cell_net: Integers
    processing_row: Integers
    processing_bucket: Integers
    processing_count: Integers


def read(rows: pa.Table) -> Lived:
    """Rows of partials (COLUMNS) of one broker."""
    columns = {
        name: rows.column(name).to_numpy()
        for name in ("enqueued", *COUNTED, "started", "retries", "finished_unreceived")
    }
    for name, formula in _SOURCES.items():
        columns[name] = formula(columns)
    columns["processing_count"] = _known(rows, "processing_count", 0)
    counts = np.zeros((rows.num_rows, len(MEASURES)), np.int32)
    for place, name in enumerate(MEASURES):
        if name != "delayed":  # not how many were delayed, but how many are: that the marks tell
            counts[:, place] = columns[name]
    width = rows.column("bucket_seconds").to_numpy().astype(np.int64)
    starts = rows.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000
    cell_row, second, net = entries(rows.column("backlog_cells"), UNKNOWN)
    buckets = entries(rows.column("processing_histogram"))
    return Lived(
        names=Distinct(rows, ("queue", "subscriber", "tenant")),
        places=Distinct(rows, ("queue", "subscriber")),
        second=starts + width - 1,
        width=width,
        counts=counts,
        work=_known(rows, "processing_sum", 0.0),
        consumes=np.logical_or.reduce([columns[name] > 0 for name in COUNTED]),
        cell_row=cell_row,
        cell_second=second,
        cell_net=net,
        processing_row=buckets[0],
        processing_bucket=buckets[1],
        processing_count=buckets[2],
    )


def _known(rows: pa.Table, name: str, otherwise: Any) -> Array:
    return np.asarray(pc.fill_null(rows.column(name), otherwise).to_numpy())


def first_seconds(last: Integers, width: Integers) -> Integers:
    """The first second that each bucket tells of, from its last one and its length."""
    return np.asarray(_FIRST_SECOND({"at_second": last, "bucket_seconds": width}), np.int64)


def levels_of(rows: pa.Table) -> dict[str, tuple[int, int]]:
    """Up to which second each broker's rows are told by the minute or longer, and by the hour or longer."""
    found: dict[str, tuple[int, int]] = {}
    wide = rows.select(LEVELS).filter(pc.greater_equal(rows.column("bucket_seconds"), 60))
    for broker, mine in by_broker(wide):
        width = mine.column("bucket_seconds").to_numpy()
        last = mine.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000 + width - 1
        hours = last[width >= 3600]
        found[broker] = int(last.max()), int(hours.max()) if len(hours) else -1
    return found


def raise_levels(known: dict[str, tuple[int, int]], more: Mapping[str, tuple[int, int]]) -> None:
    """Have ``known`` reach as far as ``more``, both as :func:`levels_of` tells them."""
    for broker, (minutes, hours) in more.items():
        before = known.get(broker, (-1, -1))
        known[broker] = max(before[0], minutes), max(before[1], hours)


def by_broker(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each broker."""
    brokers = pc.unique(rows.column("broker")).to_pylist()
    for broker in brokers:
        yield broker, rows if len(brokers) == 1 else rows.filter(pc.equal(rows.column("broker"), broker))
