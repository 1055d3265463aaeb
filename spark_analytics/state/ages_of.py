"""What partials and retained first attempts tell of ages, as :class:`~spark_analytics.state.buckets.Buckets`."""

from __future__ import annotations

from sys import intern
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.tables import AGE_KINDS, FOLDED_KIND
from spark_analytics.fold.arrays import Array, distinct, with_room
from spark_analytics.fold.lived import Distinct
from spark_analytics.fold.names import KeyNumbers
from spark_analytics.state.buckets import Buckets, code_of, empty, together
from spark_analytics.transforms.lists import entries

NAMES = ("broker", "queue", "subscriber", "tenant")
KINDS = (*AGE_KINDS, FOLDED_KIND)
FIRST, FOLDED = KINDS.index("first_attempt"), KINDS.index(FOLDED_KIND)
_VALUES = ("count", "sum", "max", "skewed", "histogram")
#: The columns of partials that are read; older files lack some.
PARTIAL_COLUMNS = (
    *NAMES, "bucket_start", "bucket_seconds", *(f"{kind}_age_{value}" for kind in KINDS for value in _VALUES),
)  # fmt: skip
#: The columns of marks that are read.
MARK_COLUMNS = (
    *NAMES, "message_id", "event_type", "attempt", "occurred_at", "age_seconds", "age_index", "age_skewed", "fold",
)  # fmt: skip


class Keys:
    """Numbers for (broker, queue, subscriber, tenant), as partials have them: '' is a queue's unnamed subscriber."""

    def __init__(self) -> None:
        self._numbers = KeyNumbers()
        self._place_numbers: dict[tuple[str, str, str], int] = {}
        self._broker_numbers: dict[str, int] = {}
        self._place_of, self._broker_of = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of each key, of each place
        self._tenants: Any = pa.array([], pa.string())
        self._new: list[pa.Array] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def brokers(self) -> list[str]:
        """The brokers in the order of their numbers."""
        return list(self._broker_numbers)

    def broker_number(self, broker: str) -> int:
        """The number of ``broker``."""
        return self._broker_numbers.setdefault(broker, len(self._broker_numbers))

    def broker_of(self, keys: Array) -> Array:
        """The numbers of the brokers of ``keys``."""
        brokers: Array = self._broker_of[self._place_of[keys]]
        return brokers

    def queues_of(self, keys: Array) -> set[tuple[str, str]]:
        """The (broker, queue) that ``keys`` are about."""
        places = list(self._place_numbers)
        return {places[place][:2] for place in distinct(self._place_of[keys]).tolist()}

    def of(self, rows: pa.Table) -> Array:
        """The number of each row's key, new or known."""
        names, places = Distinct(rows, NAMES), Distinct(rows, NAMES[:-1])
        for place in places.distinct:
            if place not in self._place_numbers:
                broker, queue, subscriber = map(intern, place)
                number = self._place_numbers[broker, queue, subscriber] = len(self._place_numbers)
                self._broker_of = with_room(self._broker_of, number + 1)
                self._broker_of[number] = self.broker_number(place[0])
        place_numbers = np.array([self._place_numbers[place] for place in places.distinct], np.int64)
        tenants, of_name = names.column(3), place_numbers[places.of_row[names.row_of]]

        def new(at: Array) -> list[int]:
            known, self._count = self._count, self._count + len(at)
            self._place_of = with_room(self._place_of, self._count)
            self._place_of[known : self._count] = of_name[at]
            self._new.append(tenants.take(pa.array(at)).cast(pa.string()))
            return list(range(known, self._count))

        return self._numbers.find(of_name, tenants, new)[names.of_row]

    def unnamed(self, rows: pa.Table) -> Array:
        """The number of each row's key with the unnamed subscriber in the place of its own."""
        place = rows.schema.get_field_index("subscriber")
        return self.of(rows.set_column(place, "subscriber", pa.array([""] * rows.num_rows, pa.string())))

    def columns(self, keys: Array) -> dict[str, pa.Array]:
        """The names of ``keys``; the unnamed subscriber is null."""
        if self._new:
            self._tenants = pa.concat_arrays([self._tenants, *self._new])
            self._new.clear()
        of_keys, texts = pa.array(self._place_of[keys]), list(zip(*self._place_numbers, strict=True)) or [(), (), ()]
        found = {name: pa.array(column, pa.string()).take(of_keys) for name, column in zip(NAMES, texts, strict=False)}
        unnamed = pc.equal(found["subscriber"], "")
        found["subscriber"] = pc.if_else(unnamed, pa.scalar(None, pa.string()), found["subscriber"])
        return found | {"tenant": self._tenants.take(pa.array(keys))}


def of_partials(rows: pa.Table, keys: Keys) -> Buckets:
    """What ``rows`` of partials tell, row by row and kind by kind.

    What was received on a queue without named subscribers was received by the first of them.
    """
    if rows.num_rows == 0:
        return empty()
    of_row = keys.of(rows)
    starts = rows.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000
    widths = rows.column("bucket_seconds").to_numpy().astype(np.int64)
    parts = []
    for number, kind in enumerate(KINDS):
        if f"{kind}_age_count" not in rows.column_names:
            continue
        known = rows.column(f"{kind}_age_count")
        if known.null_count == len(known):
            continue
        counts = pc.fill_null(known, 0).to_numpy()
        told = np.flatnonzero(counts > 0)
        if len(told) == 0:
            continue
        chosen = rows.select([*NAMES, *(f"{kind}_age_{value}" for value in _VALUES)])
        chosen = chosen.take(pa.array(told)) if len(told) < rows.num_rows else chosen
        of_key = keys.unnamed(chosen) if number == FOLDED else of_row[told]
        values = [chosen.column(f"{kind}_age_{value}") for value in _VALUES]
        part = _buckets(code_of(starts[told], of_key * len(KINDS) + number), widths[told], values)
        parts.append(part)
        if number == FIRST:
            unnamed = np.flatnonzero(pc.equal(chosen.column("subscriber"), "").to_numpy())
            mine = part.at(unnamed) if len(unnamed) < len(told) else part
            parts.append(mine.recoded(mine.code + (FOLDED - FIRST)))
    return together(parts)


def _buckets(codes: Array, widths: Array, values: list[pa.ChunkedArray]) -> Buckets:
    """Buckets of the columns ``values``, as _VALUES names them."""
    *numbers, histograms = values
    rows, indices, counts = entries(histograms)
    cells = np.bincount(rows, minlength=len(histograms))
    n, total, most, skewed = (np.asarray(pc.fill_null(column, 0).to_numpy()) for column in numbers)
    return Buckets(codes, widths, n, total, most, skewed, cells, indices, counts)


def of_state(rows: pa.Table, keys: Keys) -> Buckets:
    """What ``rows`` of `age_state` tell, one bucket each."""
    number = pc.index_in(rows.column("kind").cast(pa.string()), pa.array(KINDS)).to_numpy()
    place = rows.schema.get_field_index("subscriber")
    named = rows.set_column(place, "subscriber", pc.fill_null(rows.column("subscriber").cast(pa.string()), ""))
    slots = keys.of(named) * len(KINDS) + number
    starts = rows.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000
    widths = rows.column("bucket_seconds").to_numpy().astype(np.int64)
    names = ("count", "total_seconds", "max_seconds", "skewed", "histogram")
    return _buckets(code_of(starts, slots), widths, [rows.column(name) for name in names])


def of_receipts(starts: Array, slots: Array, ages: Array, indices: Array, skewed: Array) -> Buckets:
    """First attempts one by one, each in the bucket of its second; of each: its age, in seconds, and its index."""
    ones = np.ones(len(starts), np.int64)
    return Buckets(
        code_of(starts, slots), ones, ones, ages, ages, skewed.astype(np.int64), ones, indices.astype(np.int64), ones
    )
