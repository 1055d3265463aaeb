"""Which messages were unfinished, from bronze events in any order, in memory that grows with the unfinished alone.

Two passes over the events. The first keeps three bits a message and subscriber; a chunk of messages that are all alike,
as the long finished are, is one number. The second gathers the rows of the few messages that the first left open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.ordered import distinct
from lake.schema import TIMESTAMP
from lake.tables import FINISHING_TYPES

#: Columns of ``message_events`` that are needed.
COLUMNS = ["source", "queue", "message_id", "subscriber", "event_type", "attempt", "enqueued_at", "tenant"]

CHUNK = 1 << 14
_ARRIVED, _SEEN, _FINISHED = 1, 2, 4
_IDENTITY = r"^(?:(?P<generation>[0-9]{1,18}):)?(?P<sequence>[0-9]{1,18})$"
_KEY = ["queue", "generation", "sequence", "subscriber"]

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint8]
#: A queue, and how often its stream had been recreated.
Stream = tuple[str, int]


class _Progress:
    """What is known of each message of one stream and subscriber."""

    def __init__(self) -> None:
        self.chunks: dict[int, Flags | int] = {}
        self.newest = 0

    def add(self, sequences: Numbers, flags: Flags) -> None:
        """Lay ``flags`` over what is known."""
        self.newest = max(self.newest, int(sequences.max()))
        numbers = sequences // CHUNK
        for number in distinct(numbers).tolist():
            of = numbers == number
            self._merge(number, sequences[of] % CHUNK, flags[of])

    def _merge(self, number: int, index: Numbers, flags: Flags) -> None:
        known = self.chunks.get(number, 0)
        if isinstance(known, int):
            if not np.any(flags & ~np.uint8(known)):
                return
            known = np.full(CHUNK, known, np.uint8)
        for flag in (_ARRIVED, _SEEN, _FINISHED):
            known[index[flags & flag != 0]] |= flag
        alike = bool((known == known[0]).all())
        self.chunks[number] = int(known[0]) if alike else known

    def flags(self, number: int) -> Flags:
        """The flags of chunk ``number``, one for each message."""
        known = self.chunks.get(number, 0)
        return np.full(CHUNK, known, np.uint8) if isinstance(known, int) else known


def open_messages(
    events: Callable[[], Iterable[pa.RecordBatch]], source: str, known: Mapping[Stream, set[int]]
) -> pa.Table:
    """What ``source``'s ``events`` (:data:`COLUMNS`, told twice) say of messages that not every subscriber finished.

    Also of the newest of each stream, and of ``known`` ones. One row for each message and subscriber: queue,
    generation, sequence, subscriber, enqueued_at (microseconds), tenant, attempts, arrived, finished.
    """
    progress: dict[Stream, dict[str | None, _Progress]] = defaultdict(lambda: defaultdict(_Progress))
    for batch in _identified(events(), source):
        flags = _flags(batch)
        sequences = _numbers(batch, "sequence")
        for (queue, generation, subscriber), of in _groups(batch, ["queue", "generation", "subscriber"]):
            progress[queue, generation][subscriber].add(sequences[of], flags[of])
    wanted = {stream: _open(groups, known.get(stream, set())) for stream, groups in progress.items()}
    return _facts([_chosen(batch, wanted) for batch in _identified(events(), source)])


def _open(groups: Mapping[str | None, _Progress], known: set[int]) -> Numbers:
    """Sequences of one stream that not all of its subscribers finished, in order."""
    named = [progress for subscriber, progress in groups.items() if subscriber is not None]
    shared = groups.get(None, _Progress())
    found = [np.array(sorted(known | {max(progress.newest for progress in groups.values())}), np.int64)]
    for number in sorted({number for progress in groups.values() for number in progress.chunks}):
        unnamed = shared.flags(number)
        ends = (unnamed & _FINISHED != 0).astype(np.int64)
        lasting = np.zeros(CHUNK, bool)
        for progress in named:
            flags = progress.flags(number)
            ends += flags & _FINISHED != 0
            lasting |= (flags != 0) & (flags & _FINISHED == 0)
        lasting |= (unnamed != 0) & (ends < max(1, len(named)))
        found.append(np.flatnonzero(lasting) + number * CHUNK)
    return distinct(*found)


def _identified(batches: Iterable[pa.RecordBatch], source: str) -> Iterator[pa.Table]:
    """The rows of ``source``, their message's identity parted into generation and sequence."""
    for batch in batches:
        rows = pa.table(batch.filter(pc.equal(batch.column("source"), source)))
        identities = rows.column("message_id")
        plain = pc.and_(pc.ascii_is_decimal(identities), pc.less_equal(pc.binary_length(identities), 18))
        if not pc.all(plain).as_py():
            parts = pc.extract_regex(identities, pattern=_IDENTITY)
            of = pc.struct_field(parts, "generation")
            generations = pc.if_else(pc.equal(of, ""), "0", of).cast(pa.int64())
            sequences = pc.struct_field(parts, "sequence").cast(pa.int64())
        else:  # nearly always, and ten times as fast
            sequences = identities.cast(pa.int64())
            generations = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        rows = rows.append_column("generation", generations).append_column("sequence", sequences)
        rows = rows.drop_columns(["source", "message_id"]).filter(pc.is_valid(sequences))
        if rows.num_rows:
            yield rows


def _groups(rows: pa.Table, names: list[str]) -> Iterator[tuple[tuple[Any, ...], npt.NDArray[np.bool_]]]:
    """Each combination of ``names`` with a mask of its rows."""
    numbered, values = np.zeros(rows.num_rows, np.int64), []
    for name in names:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        values.append(encoded.dictionary.to_pylist())
        numbered = numbered * len(values[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    for number in distinct(numbered).tolist():
        rest, key = number, []
        for of in reversed(values):
            rest, index = divmod(rest, len(of))
            key.append(of[index])
        yield tuple(reversed(key)), numbered == number


def _flags(rows: pa.Table) -> Flags:
    kinds = rows.column("event_type")
    arrived = pc.equal(kinds, "enqueued").to_numpy()
    finished = pc.is_in(kinds, pa.array(FINISHING_TYPES)).to_numpy()
    return np.where(arrived, _ARRIVED, np.where(finished, _SEEN | _FINISHED, _SEEN)).astype(np.uint8)


def _numbers(rows: pa.Table, name: str) -> Numbers:
    return np.asarray(rows.column(name).to_numpy(), np.int64)


def _chosen(rows: pa.Table, wanted: Mapping[Stream, Numbers]) -> pa.Table:
    sequences = _numbers(rows, "sequence")
    chosen = np.zeros(rows.num_rows, bool)
    for stream, of in _groups(rows, ["queue", "generation"]):
        chosen |= of & np.isin(sequences, wanted[stream])
    return rows.filter(pa.array(chosen))


def _facts(parts: list[pa.Table]) -> pa.Table:
    """One row for each message and subscriber of the chosen events."""
    rows = pa.concat_tables(parts) if parts else _ROWS.empty_table()
    kinds = rows.column("event_type")
    facts = rows.select(_KEY).append_column("tenant", rows.column("tenant"))
    facts = facts.append_column("enqueued_at", rows.column("enqueued_at").cast(pa.int64()))
    attempts = pc.if_else(pc.equal(kinds, "received"), rows.column("attempt"), None).fill_null(0)
    facts = facts.append_column("attempts", attempts.cast(pa.int64()))
    facts = facts.append_column("arrived", pc.equal(kinds, "enqueued"))
    facts = facts.append_column("finished", pc.is_in(kinds, pa.array(FINISHING_TYPES)))
    folds = {"enqueued_at": "max", "tenant": "max", "attempts": "max", "arrived": "any", "finished": "any"}
    folded = facts.group_by(_KEY).aggregate(list(folds.items()))
    return folded.rename_columns({f"{name}_{fold}": name for name, fold in folds.items()})


_ROWS = pa.schema(
    [
        ("queue", pa.string()),
        ("generation", pa.int64()),
        ("sequence", pa.int64()),
        ("subscriber", pa.string()),
        ("event_type", pa.string()),
        ("attempt", pa.int32()),
        ("enqueued_at", TIMESTAMP),
        ("tenant", pa.string()),
    ]
)
