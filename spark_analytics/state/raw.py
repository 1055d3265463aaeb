"""What the folds have come to as raw rows of `tenant_state` and `queue_state`, every key numbered and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.finished import QUEUE_STATE, TENANT_STATE
from lake.schema import TIMESTAMP
from spark_analytics.fold.arrays import Array, distinct
from spark_analytics.fold.fold import BACKLOGGED, MODES, Fold
from spark_analytics.fold.past import Clocks
from spark_analytics.state.project import array_of
from spark_analytics.state.seconds import Part, Taken


class Numbers:
    """Gives each thing of an epoch the next free number; ``found`` is what number a fold itself has for a name.

    A queue that is folded apart keeps its numbers, and those of its tenants.
    """

    def __init__(self, named: Callable[[Fold], Sequence[Any]], found: Callable[[Fold, Any], int | None]) -> None:
        self._named, self._found = named, found
        self._of: dict[tuple[str, Fold], Array] = {}
        self._next = 0

    def __len__(self) -> int:
        return self._next

    def of(self, broker: str, fold: Fold, own: Array) -> Array:
        """The numbers of the things that ``fold``, of ``broker`` or a queue of it, has as ``own``."""
        numbers = self._of.get((broker, fold), np.zeros(0, np.int64))
        if (most := int(own.max(initial=-1))) >= len(numbers):
            numbers = np.concatenate((numbers, np.full(max(1024, most + 1), -1, np.int64)))
        new = distinct(own[numbers[own] < 0])
        if fold.only is not None:
            numbers[new] = [self._before(broker, fold, number) for number in new.tolist()]
            new = new[numbers[new] < 0]
        numbers[new] = self._next + np.arange(len(new))
        self._next += len(new)
        self._of[broker, fold] = numbers
        of_own: Array = numbers[own]
        return of_own

    def _before(self, broker: str, fold: Fold, own: int) -> int:
        """The number that another fold of ``broker`` has given to what ``fold`` has as ``own``; −1: none."""
        name = self._named(fold)[own]
        for (its_broker, other), numbers in self._of.items():
            if its_broker == broker and other is not fold:
                known = self._found(other, name)
                if known is not None and known < len(numbers) and numbers[known] >= 0:
                    return int(numbers[known])
        return -1


def numbers() -> dict[str, Numbers]:
    """Those of the keys of an epoch, by table; none is given yet."""
    return {
        TENANT_STATE.name: Numbers(lambda fold: fold.state.names, lambda fold, name: fold.state.key_of(name)),
        QUEUE_STATE.name: Numbers(
            lambda fold: fold.state.consumers, lambda fold, name: fold.state.consumer_of_name(name)
        ),
    }


def rows_of(taken: Taken, numbers: Mapping[str, Numbers], clocks: Mapping[str, Clocks]) -> dict[str, pa.Table]:
    """The rows that were ``taken``, of each table that has any."""
    keys, queue_keys = (numbers[name] for name in (TENANT_STATE.name, QUEUE_STATE.name))
    rows = {
        QUEUE_STATE.name: _queues(taken.queues, queue_keys, clocks),
        TENANT_STATE.name: _tenants(taken.tenants, keys, queue_keys),
    }
    return {name: each for name, each in rows.items() if each is not None}


def _tenants(parts: list[Part], keys: Numbers, queue_keys: Numbers) -> pa.Table | None:
    tables = []
    for part in parts:
        consumers = part.columns["consumer"]
        named = {
            "queue_key": queue_keys.of(part.broker, part.fold, consumers),
            "tenant": part.fold.state.tenant_names().take(pa.array(part.numbers)),
        }
        tables.append(_table(TENANT_STATE.schema, part, keys, consumers, named))
    return _together(tables)


def _queues(parts: list[Part], keys: Numbers, clocks: Mapping[str, Clocks]) -> pa.Table | None:
    tables = []
    for part in parts:
        words, columns = part.fold.readings.words, part.columns
        named: dict[str, Any] = {name: words.column(columns[name]) for name in ("status", "dead_letter_for")}
        named["mode"] = pa.array([MODES[number - 1] or None for number in columns["mode"].tolist()], pa.string())
        for name, micros in zip(("newest_event_at", "newest_sample_at"), clocks[part.broker], strict=True):
            named[name] = pa.array([micros] * len(part.numbers), TIMESTAMP)
        tables.append(_table(QUEUE_STATE.schema, part, keys, part.numbers, named))
    return _together(tables)


def _table(schema: pa.Schema, part: Part, keys: Numbers, consumers: Array, named: Mapping[str, Any]) -> pa.Table:
    """The rows of ``part`` with their keys, the names of their ``consumers``, and what is ``named`` already."""
    count, of_row = len(part.numbers), pa.array(consumers.astype(np.int32))
    queues, subscribers = zip(*part.fold.state.consumers, strict=True)
    columns = {
        name: array_of(values, schema.field(name).type, count)
        for name, values in part.columns.items()
        if name in schema.names and name not in named
    }
    columns |= {
        "as_of_us": part.columns["as_of_us"],
        "corrects": pa.array([part.corrects] * count, pa.int64()),
        "key": keys.of(part.broker, part.fold, part.numbers),
        "broker": pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([part.broker], pa.string())),
        "queue": pa.DictionaryArray.from_arrays(of_row, pa.array(queues, pa.string())),
        "subscriber": pa.array([name or None for name in subscribers], pa.string()).take(of_row),
    }
    return pa.table(columns | dict(named))


def troubled(rows: pa.Table) -> bool:
    """Whether any of ``rows`` of queues is of a backlogged one, or of one with a noisy tenant."""
    backlogged = pc.any(pc.equal(rows.column("mode"), BACKLOGGED)).as_py()
    return bool(backlogged) or bool(pc.max(rows.column("noisy_tenants")).as_py())


def _together(tables: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries() if tables else None
