"""Finished state gets coarser with age: a row a key and second, then one a minute, then one an hour.

Each keeps the newest row that its key had in it, which is one of history if any of them was; what a later epoch or a
correction told again goes. The epoch that is being written is left alone: readers follow it. Of every epoch
`queue_state` keeps a row of its first second, and one of every correction: they supersede others from there on. Ages
are added up instead: :mod:`spark_analytics.maintenance.ages`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.finished import AGE_STATE, QUEUE_STATE
from lake.schema import TIMESTAMP
from lake.store import Lake
from spark_analytics.maintenance import ages
from spark_analytics.maintenance.merging import MANY_FILES, SMALL_BYTES, add_actions
from spark_analytics.maintenance.region import Region, Value, replace
from spark_analytics.maintenance.retention import DAY, HOUR, MINUTE, Retention
from spark_analytics.maintenance.slices import MOST_ROWS

Array = npt.NDArray[Any]

_NAMES = ("broker", "queue", "subscriber", "tenant")
_MICROS = 1_000_000
#: What is thinned at once when it has aged, by the width that its rows are thinned to. If seconds had to wait for their
#: hour's end, they would be kept for up to an hour longer.
_SLICES = {MINUTE: 15 * MINUTE, HOUR: DAY}
_HAPPENED = "happened"


def prune(
    lake: Lake, name: str, retention: Retention, now: datetime, told: Callable[[], Epochs], *, thorough: bool
) -> int:
    """Thin table ``name`` as far as it is due; how many rows went. SojournError where the table cannot be used.

    ``told`` says of its epochs, and is asked where something is due.
    """
    if name == AGE_STATE.name:
        return ages.prune(lake, thorough=thorough)
    files = add_actions(lake, name)
    if files.num_rows == 0 or "max.epoch" not in files.column_names:
        return 0
    current = pc.max(files.column("max.epoch")).as_py()
    closed = files.filter(pc.less(files.column("max.epoch"), current))
    gone = 0
    for conditions in _due(closed, retention, now, thorough=thorough):
        region = Region((*conditions, ("epoch", "<", current)))
        done = replace(
            lake, name, region, lambda rows: pruned(rows, retention, now, told(), begins=name == QUEUE_STATE.name)
        )
        gone += done[0] - done[1] if done else 0
    return gone


def _due(
    files: pa.Table, retention: Retention, now: datetime, *, thorough: bool
) -> list[tuple[tuple[str, str, Value], ...]]:
    """Parts of the table that are worth a commit: many small files, and slices told too finely."""
    small = files.filter(pc.less(files.column("size_bytes"), SMALL_BYTES // 8))
    due: list[tuple[tuple[str, str, Value], ...]] = []
    if small.num_rows >= MANY_FILES:
        due.append((("epoch", ">=", pc.min(small.column("min.epoch")).as_py()),))
    if thorough:
        for width, older in ((MINUTE, retention.seconds_for), (HOUR, retention.minutes_for)):
            for begins in _windows(files, _SLICES[width], now - older):
                due += [_between(*part) for part in _parts(files, begins, _SLICES[width], width)]
    return due


def _windows(files: pa.Table, width: int, until: datetime) -> list[int]:
    """The windows, by the second in which they begin, that end before ``until`` and stand in more than one file."""
    found: dict[int, int] = {}
    for first, last in zip(*(ends.tolist() for ends in _ends(files)), strict=True):
        for number in range((first - 1) // _MICROS // width, (last - 1) // _MICROS // width + 1):
            found[number] = found.get(number, 0) + 1
    return sorted(
        number * width for number, count in found.items() if count > 1 and (number + 1) * width <= until.timestamp()
    )


def _parts(files: pa.Table, begins: int, length: int, width: int) -> list[tuple[int, int]]:
    """The window in parts of whole ``width`` seconds, by begin and length, of no more than :data:`MOST_ROWS` rows as
    far as files tell: their rows are taken to be spread evenly over their time."""
    firsts, lasts = (ends / _MICROS for ends in _ends(files))
    inside = np.minimum(lasts, begins + length) - np.maximum(firsts, begins)
    shares = np.clip((inside + 1) / (lasts - firsts + 1), 0.0, 1.0)
    rows = float(np.sum(shares * files.column("num_records").to_numpy()))
    each = max(1, int(length // width * min(1.0, MOST_ROWS / max(rows, 1.0)))) * width
    return [(start, min(each, begins + length - start)) for start in range(begins, begins + length, each)]


def _ends(files: pa.Table) -> tuple[Array, Array]:
    """The first and the last instant of each file, in microseconds since 1970."""
    first, last = (files.column(f"{end}.as_of").cast(TIMESTAMP).cast(pa.int64()).to_numpy() for end in ("min", "max"))
    return first, last


def _between(begins: int, width: int) -> tuple[tuple[str, str, Value], ...]:
    """What is of the seconds from ``begins`` on: what is told of one is so after it began, at its end at the latest."""
    first = datetime.fromtimestamp(begins, UTC)
    return ("as_of", ">", first), ("as_of", "<=", first + timedelta(seconds=width))


class Epochs:
    """When the epochs of finished state begin, and from when on later ones supersede them, broker by broker; and from
    when on corrections supersede what was told of a queue."""

    def __init__(self, lake: Lake) -> None:
        rows = lake.read(QUEUE_STATE.name, columns=["broker", "queue", "epoch", "revision", "second", "corrects"])
        told = rows.filter(pc.is_null(rows.column("corrects"))).group_by(["broker", "epoch"])
        firsts = told.aggregate([("second", "min")]).sort_by([("epoch", "descending")])
        corrected = rows.filter(pc.is_valid(rows.column("corrects"))).group_by(["broker", "queue", "revision"])
        self._corrected: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for row in corrected.aggregate([("corrects", "min")]).to_pylist():
            since = self._corrected.setdefault((row["broker"], row["queue"]), [])
            since.append((row["revision"], row["corrects_min"]))
        self._begins: dict[tuple[str, int], int] = {}
        self._superseded: dict[tuple[str, int], int] = {}
        least: dict[str, int] = {}
        for row in firsts.to_pylist():
            broker, first = row["broker"], row["second_min"]
            if broker in least:
                self._superseded[broker, row["epoch"]] = least[broker]
            if first is not None:
                self._begins[broker, row["epoch"]] = first
                least[broker] = min(first, least.get(broker, first))

    def of(self, rows: pa.Table) -> tuple[Array, Array]:
        """Of each of ``rows`` the first second of its epoch, and that from which later rows supersede it."""
        places = list(zip(*(rows.column(name).to_pylist() for name in ("broker", "epoch")), strict=True))
        never = np.iinfo(np.int64).max
        begins = np.array([self._begins.get(place, -1) for place in places], np.int64)
        until = np.array([self._superseded.get(place, never) for place in places], np.int64)
        revisions = rows.column("revision").to_numpy()
        for (broker, queue), corrections in self._corrected.items():
            its = pc.and_(pc.equal(rows.column("broker"), broker), pc.equal(rows.column("queue"), queue))
            mine = np.flatnonzero(its.to_numpy(zero_copy_only=False))
            for revision, second in corrections if len(mine) else ():
                until[mine] = np.where(revisions[mine] < revision, np.minimum(until[mine], second), until[mine])
        return begins, until


def pruned(
    rows: pa.Table, retention: Retention, now: datetime, epochs: Epochs | None = None, *, begins: bool = False
) -> pa.Table:
    """Of each key the newest of ``rows`` in each second, minute or hour, by how old they are; in order of seconds.

    Without what ``epochs`` have superseded; ``begins``: with a row of the first second of each of them.
    """
    micros = rows.column("as_of").cast(pa.int64()).to_numpy()
    age = now.timestamp() * _MICROS - micros
    seconds = rows.column("second").fill_null(0).to_numpy()
    seconds = np.where(seconds > 0, seconds, micros // _MICROS)  # rows of before there was this column
    minutes_old, hours_old, gone = (
        age > limit.total_seconds() * _MICROS
        for limit in (retention.seconds_for, retention.minutes_for, retention.hours_for)
    )
    width = np.where(hours_old, HOUR, np.where(minutes_old, MINUTE, 1))
    windows = seconds // width * width + (width - 1)
    names = [name for name in _NAMES if name in rows.column_names]
    order = np.lexsort((rows.column("revision").to_numpy(), seconds))
    first = np.zeros(len(seconds), bool)
    if epochs is not None:
        firsts, superseded_from = epochs.of(rows)
        gone = gone | (seconds >= superseded_from)
        if begins:
            first = (seconds == firsts) | pc.is_valid(rows.column("corrects")).to_numpy()
    order = order[~gone[order]]
    happened = np.zeros(len(seconds), bool)
    if _HAPPENED in rows.column_names:
        happened |= rows.column(_HAPPENED).fill_null(False).to_numpy()
    for parts in (seconds, windows):  # what a second was said to be before it was told again does not count
        order, told = _newest(rows.select(names), order, parts, happened)
        happened[order] = told
    kept = np.union1d(order, _one_each(rows, np.flatnonzero(first)))
    found = rows.take(pa.array(kept))
    if _HAPPENED not in rows.column_names:
        return found
    happened &= np.isin(np.arange(len(happened)), order)  # what is kept beside them is no row of history
    return found.set_column(found.schema.get_field_index(_HAPPENED), _HAPPENED, pa.array(happened[kept]))


def _newest(names: pa.Table, order: Array, windows: Array, happened: Array) -> tuple[Array, Array]:
    """Of the rows ``order``, from the oldest to the newest, the newest of each key and window, and whether any of these
    ``happened``."""
    keyed = names.take(pa.array(order)).append_column("window", pa.array(windows[order]))
    keyed = keyed.append_column("place", pa.array(np.arange(len(order))))
    keyed = keyed.append_column("happened", pa.array(happened[order]))
    found = keyed.group_by([*names.column_names, "window"]).aggregate([("place", "max"), ("happened", "any")])
    places = found.column("place_max").to_numpy()
    ordered = np.argsort(places)
    return order[places[ordered]], found.column("happened_any").to_numpy()[ordered]


def _one_each(rows: pa.Table, which: Array) -> Array:
    """The first of the rows ``which`` of each broker and epoch, and of each correction of a queue."""
    named = rows.select(["broker", "epoch", "queue", "revision", "corrects"]).take(pa.array(which))
    named = named.append_column("row", pa.array(which))
    correction = pc.is_valid(named.column("corrects"))
    found = [
        part.group_by(by).aggregate([("row", "min")]).column("row_min").to_numpy()
        for part, by in (
            (named.filter(pc.invert(correction)), ["broker", "epoch"]),
            (named.filter(correction), ["broker", "queue", "revision"]),
        )
    ]
    return np.concatenate(found)
