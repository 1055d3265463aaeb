"""Attempts that nobody numbered, numbered by the order in which they arrive.

Some sources tell that a message was received, and not for which time. The n-th receipt of a message by a subscriber is
attempt n, and what follows it until the next belongs to it. Messages that have not ended are remembered, up to a bound;
what is remembered is kept beside the checkpoint, a small file for each batch that changed it, so that a batch that is
done again after a crash begins where it began before. Sources that number their attempts cost nothing here.
"""

from __future__ import annotations

import json
import logging
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from lake.errors import UserError
from lake.files import write_atomically
from lake.tables import FINISHING_TYPES
from spark_analytics.transforms.groups import encoded
from spark_analytics.transforms.lists import Integers, one_chunk

log = logging.getLogger(__name__)

#: Messages that are remembered at most, the latest received; of one that was forgotten the next attempt is the first.
MOST_MESSAGES = 500_000
#: Files of changes between two that tell all.
CHANGES = 100
_TYPES = frozenset({"received", "completed", "failed", "delayed", *FINISHING_TYPES})
#: SQL over the columns of message_events: whether an event's attempt is not told and could be.
UNNUMBERED_SQL = f"(attempt IS NULL AND coalesce(event_type IN {tuple(sorted(_TYPES))}, false))"
_FINISHING = frozenset(FINISHING_TYPES)
_Number = tuple[int, int]  # a batch, and the version to which was read on behind it; −1: the batch itself
_KEY = ("broker", "queue", "subscriber", "message_id")


class Attempts:
    """How often each message that has not ended was received, as of a batch. Belongs to one query's thread.

    Its notes are in ``folder``. What is read on behind an open batch (:mod:`spark_analytics.tail`) is noted by it and
    the ``version`` of bronze that was reached; of the batch itself that is −1.
    """

    def __init__(self, folder: Path, most: int = MOST_MESSAGES) -> None:
        self.folder = folder
        self._most = most
        self._begun: dict[str, int] | None = None
        self._changed: dict[str, int] = {}
        self._files = 0

    def begin(self, batch_id: int, version: int = -1) -> None:
        """Be as before ``batch_id``, or what is read on behind it to ``version``; the first call reads what an earlier
        process kept."""
        if self._begun is None:
            self._begun = self._read((batch_id, version))
        self._changed = {}

    def forget(self, batch_id: int, beyond: int) -> None:
        """Drop the notes of what was read on behind ``batch_id`` beyond the version that gold has. Before all else."""
        for number, file in self._kept():
            if number[0] == batch_id and number[1] > beyond:
                file.unlink(missing_ok=True)

    def numbered(self, rows: pa.Table) -> pa.Table:
        """``rows`` in the order of their arrival, with the attempts that nobody numbered; summaries have none."""
        if "attempt" not in rows.column_names:
            return rows
        asked = _unnumbered(rows)
        if len(asked) == 0:
            return rows
        attempts = one_chunk(rows.column("attempt"))
        numbers = attempts.fill_null(0).to_numpy(zero_copy_only=False).copy()
        unknown = attempts.is_null().to_numpy(zero_copy_only=False)
        chosen = rows.select([*_KEY, "event_type"]).take(pa.array(asked))
        columns = (chosen.column(name).to_pylist() for name in chosen.column_names)
        for row, (*key, event_type) in zip(asked.tolist(), zip(*columns, strict=True), strict=True):
            number = self._number(_digest(key), event_type)
            numbers[row], unknown[row] = number or 0, number is None
        return rows.set_column(rows.column_names.index("attempt"), "attempt", pa.array(numbers, mask=unknown))

    def keep(self, batch_id: int, version: int = -1) -> None:
        """Note what changed since :meth:`begin`; to be called before the rows are in gold."""
        if not self._changed:
            return
        assert self._begun is not None
        self._files += 1
        name = str(batch_id) if version < 0 else f"{batch_id}-{version}"
        if self._files > CHANGES:
            write_atomically(self.folder / f"{name}.all.json", json.dumps(self._begun))
            self._drop_before((batch_id, version))
            self._files = 1
        else:
            write_atomically(self.folder / f"{name}.json", json.dumps(self._changed))

    def _number(self, key: str, event_type: str) -> int | None:
        assert self._begun is not None
        number = self._begun.pop(key, None)
        if event_type == "received":
            number = (number or 0) + 1
        if number is None:
            return None
        if event_type in _FINISHING:
            self._changed[key] = 0
            return number
        self._begun[key] = self._changed[key] = number  # at the end: the latest to be forgotten
        while len(self._begun) > self._most:
            self._changed[forgotten := next(iter(self._begun))] = 0
            del self._begun[forgotten]
        return number

    def _read(self, before: _Number) -> dict[str, int]:
        begun: dict[str, int] = {}
        for number, file in sorted(self._kept()):
            if number >= before:
                break
            try:
                noted = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise UserError(
                    f"{file} cannot be read: {error}", "compute gold anew from bronze: `sojourn analyze --rebuild`"
                ) from error
            if file.name.endswith(".all.json"):
                begun, self._files = {}, 0
            self._files += 1
            for key, attempt in noted.items():
                begun.pop(key, None)
                if attempt:
                    begun[key] = attempt
        return begun

    def _kept(self) -> list[tuple[_Number, Path]]:
        return [(_number_of(file), file) for file in self.folder.glob("[0-9]*.json")]

    def _drop_before(self, before: _Number) -> None:
        # Those since the last that told all stay: Spark may have to do a batch again that comes before this one.
        wholes = sorted(number for number, file in self._kept() if file.name.endswith(".all.json") and number < before)
        for number, file in self._kept():
            if wholes and number < wholes[-1]:
                file.unlink(missing_ok=True)


def _number_of(file: Path) -> _Number:
    batch, _, version = file.name.partition(".")[0].partition("-")
    return int(batch), int(version or -1)


def _unnumbered(rows: pa.Table) -> Integers:
    """The rows whose attempt is not told and could be."""
    attempts = one_chunk(rows.column("attempt"))
    if attempts.null_count == 0:
        return np.empty(0, np.int64)
    codes, names = encoded(rows.unify_dictionaries().column("event_type"), "")
    meant = np.array([*(name in _TYPES for name in names.to_pylist()), False])[codes.numbers]
    return np.flatnonzero(meant & attempts.is_null().to_numpy(zero_copy_only=False))


def _digest(key: list[str | None]) -> str:
    return blake2b(json.dumps(key).encode(), digest_size=12).hexdigest()
