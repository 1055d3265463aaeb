"""Rows that cannot be written are set apart from their neighbours: a batch is halved until they stand alone.

What is raised over rows (a text that is no Unicode, a number that no column holds, a record that no topic takes,
whatever nobody foresaw) is theirs; what is raised by the place that takes them (a disk that is full, a Kafka that is
away) is not, and is tried again. Where one error may be either, the place has found out: UnwritableRows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from brokers.texts import valid
from collectors.bronze import Bronze
from collectors.records import Rejected, now_us, rejected_table
from collectors.redo import read_table, write_table
from lake.errors import SojournError
from lake.store import UnwritableRows

log = logging.getLogger(__name__)

#: After so many single refusals of one batch it is halved no further: what fails then goes as it is.
MOST_SINGLE = 200
REASON = "it cannot be written"
_TOLD = b"sojourn.apart"

Row = TypeVar("Row")


def is_of_rows(error: BaseException) -> bool:
    """Whether ``error`` may be the fault of the rows that were to be written, and not of the place for them."""
    if isinstance(error, UnwritableRows):
        return True
    return isinstance(error, Exception) and not isinstance(error, SojournError | OSError | MemoryError)


def halved(
    start: int, end: int, take: Callable[[int, int], object], refuse: Callable[[int, int, Exception], None]
) -> None:
    """Let ``take`` have all of [``start``, ``end``), from left to right, in pieces as large as it takes.

    ``refuse`` gets what it does not take, with the error: single items, but for the case that there are very many.
    Errors that are not the rows' are raised.
    """
    pieces, refused = [(start, end)] if start < end else [], 0
    while pieces:
        begin, stop = pieces.pop()
        try:
            take(begin, stop)
        except Exception as error:
            if not is_of_rows(error):
                raise
            if stop - begin <= 1 or refused >= MOST_SINGLE:
                refused += 1
                refuse(begin, stop, error)
                continue
            middle = (begin + stop) // 2
            pieces += [(middle, stop), (begin, middle)]


def sifted(rows: Sequence[Row], build: Callable[[Sequence[Row]], object]) -> tuple[list[Row], list[Rejected]]:
    """The rows of which ``build`` makes something, and the records of those of which it does not."""
    good: list[Row] = []
    bad: list[Rejected] = []

    def take(begin: int, stop: int) -> None:
        build(rows[begin:stop])
        good.extend(rows[begin:stop])

    halved(0, len(rows), take, lambda begin, stop, error: bad.append(rejected(rows[begin:stop], error)))
    return good, bad


def append_sifted(bronze: Bronze, name: str, rows: pa.Table) -> list[Rejected]:
    """Append ``rows`` without a number; returns the records of those that cannot be written."""
    bad: list[Rejected] = []
    halved(
        0,
        rows.num_rows,
        lambda begin, stop: bronze.append(name, rows.slice(begin, stop - begin)),
        lambda begin, stop, error: bad.append(rejected(rows.slice(begin, stop - begin), error)),
    )
    return bad


class RowIsolator:
    """Appends tables of which some rows cannot be written, exactly once all the same. Belongs to bronze's thread.

    A table goes in pieces, each of which commits how far it came. The table stands in a file meanwhile: whoever comes
    after a crash, or tries again, finishes it by :meth:`recover` before anything else is written.
    """

    def __init__(self, bronze: Bronze, source: str, app_id: str) -> None:
        self._bronze = bronze
        self._source = source
        self._which, self._upto = f"{app_id}/part", f"{app_id}/rows"
        name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in app_id)
        self._folder = bronze.state_path("apart", name, "x").parent

    @property
    def begun(self) -> bool:
        """Whether there is something to finish."""
        return any(self._folder.glob("*.arrow"))

    def append(self, name: str, rows: pa.Table, positions: Mapping[str, int]) -> int:
        """Append ``rows`` to table ``name``, those left out that cannot be written: they go to ``rejected_records``.

        ``positions`` are committed last. Returns how many were refused.
        """
        told = json.dumps({"version": now_us(), "positions": dict(positions)})
        path = self._folder / f"{name}.arrow"
        write_table(path, rows.replace_schema_metadata({_TOLD: told.encode()}))
        return self._finish(path)

    def recover(self) -> int:
        """Finish what was begun; returns how many rows were refused."""
        return sum(self._finish(path) for path in sorted(self._folder.glob("*.arrow")))

    def _finish(self, path: Path) -> int:
        name, rows = path.name.removesuffix(".arrow"), read_table(path)
        told = json.loads(rows.schema.metadata[_TOLD])
        rows, version, positions = rows.replace_schema_metadata(None), told["version"], told["positions"]
        bronze, which, upto = self._bronze, self._which, self._upto
        refused = 0

        def reached() -> int:
            return (bronze.committed(name, upto) or 0) if bronze.committed(name, which) == version else -1

        def take(begin: int, stop: int) -> None:
            try:
                bronze.append(name, rows.slice(begin, stop - begin), positions={which: version, upto: stop})
            except Exception:
                if reached() < stop:  # else it was written, and something failed behind it
                    raise

        def refuse(begin: int, stop: int, error: Exception) -> None:
            nonlocal refused
            refused += stop - begin
            append_rejected(bronze, [rejected(rows.slice(begin, stop - begin), error)], self._source)

        done = reached()
        if done < 0:  # how far an earlier table came counts no more
            bronze.append(name, rows.slice(0, 0), positions={which: version, upto: 0})
            done = 0
        if done < rows.num_rows:
            halved(done, rows.num_rows, take, refuse)
        bronze.append(name, rows.slice(0, 0), positions=positions)
        path.unlink()
        return refused


def rejected(rows: pa.Table | Sequence[Any], error: Exception) -> Rejected:
    """The record of ``rows`` that were refused together."""
    held = told(rows.slice(0, 10)) if isinstance(rows, pa.Table) else list(rows[:10])
    raw = json.dumps(held[0] if len(rows) == 1 else held, default=str, ensure_ascii=True)
    return Rejected(0, now_us(), f"{REASON}: {type(error).__name__}", raw, len(rows))


def told(rows: pa.Table) -> list[dict[str, Any]]:
    """``rows`` as they may be shown: what is no text as one with U+FFFD, what Python has no value for as none."""
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*map(_values, rows.columns), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            given = column.cast(pa.large_binary()).to_pylist()
            return [None if one is None else one.decode("utf-8", "replace") for one in given]
    except (ValueError, OverflowError):  # a time beyond Python's
        pass
    return [None] * len(column)


def append_rejected(bronze: Bronze, records: Sequence[Rejected], source: str, **numbered: Any) -> None:
    """Append to ``rejected_records``; what cannot be written even there is counted there without its text."""
    clean = [one._replace(reason=valid(one.reason), raw=valid(one.raw)) for one in records]
    try:
        bronze.append("rejected_records", rejected_table(clean, source), **numbered)
    except Exception as error:
        if not is_of_rows(error):
            raise
        log.exception("%s: rejected records cannot be written", source)
        bare = [one._replace(reason=REASON, raw="") for one in clean]
        bronze.append("rejected_records", rejected_table(bare, source), **numbered)
