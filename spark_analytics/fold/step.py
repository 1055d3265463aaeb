"""One second (or the end of a rolled-up bucket) of one broker: what its rows add, key by key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spark_analytics.fold.arrays import Array, Integers, run_starts, summed
from spark_analytics.fold.reading import Before, Lately

#: What is added up over the window, then what flows for good.
WINDOWED = ("enqueued", "finished", "received", "retries", "dead_lettered", "processing_count")
FLOWS = ("busy", "delayed")
MEASURES = (*WINDOWED, *FLOWS)
ENQUEUED, FINISHED = MEASURES.index("enqueued"), MEASURES.index("finished")
BUSY, DELAYED = MEASURES.index("busy"), MEASURES.index("delayed")

#: Processing time is compared in whole units of 2⁻³⁰ s: what enters a window leaves it without a trace.
WORK_UNITS = float(1 << 30)
#: No sum over a window comes near what 64 bits hold, whatever an application reports of one second.
_MOST_WORK = 1e6


def work_units(seconds: Array) -> Integers:
    """Processing seconds in whole units."""
    units: Integers = np.rint(np.clip(seconds, 0, _MOST_WORK) * WORK_UNITS).astype(np.int64)
    return units


@dataclass(slots=True)
class Undo:
    """What a step replaced. What it added is subtracted again."""

    expired: int = 0
    verdicts: Any = None
    last_arrival: Any = None
    oldest: Any = None
    readings: list[Before] = field(default_factory=list)
    modes: Any = None


@dataclass(slots=True)
class Step:
    """What happened in ``second``. Once :meth:`merged`, each key stands once, in order.

    ``wide``: the row is a rolled-up bucket that ends here; ``told``: a row of partials, not the end of a pause alone.
    ``cells`` are (codes, nets) of backlog cells, ``buckets`` (codes, counts) of processing histograms, ``sampled`` is
    what samples add to the window; ``wide_buckets`` and ``wide_sampled`` the same of what was rolled up, which is in no
    window. ``instants`` are the consumers of which the step tells, known once it was taken in.
    """

    second: int
    chunks: list[tuple[Array, ...]] = field(default_factory=list)
    cell_chunks: list[tuple[Integers, Integers]] = field(default_factory=list)
    bucket_chunks: list[tuple[Integers, Integers]] = field(default_factory=list)
    wide_bucket_chunks: list[tuple[Integers, Integers]] = field(default_factory=list)
    sampled: list[Lately] = field(default_factory=list)
    wide_sampled: list[Lately] = field(default_factory=list)
    instants: Any = None
    undo: Any = None  # an Undo, until nothing can be taken back
    is_merged: bool = False
    narrow: Any = None  # what :meth:`narrow_work` said: each second asks for it whose window the step is in

    def add(self, keys: Array, counts: Array, work: Array, wide: Array, told: Array) -> None:
        """Rows to add up: ``counts`` has one column for each of MEASURES, ``work`` is in seconds."""
        self.chunks.append((keys, counts, work, wide, told))
        self.is_merged, self.narrow = False, None

    def merged(self) -> tuple[Array, Array, Array, Array, Array]:
        """(keys, counts, work, wide, told), each key once."""
        if not self.is_merged and len(self.chunks) == 1:
            keys = self.chunks[0][0]
            self.is_merged = len(keys) < 2 or bool(np.all(keys[1:] > keys[:-1]))
        if self.is_merged:
            return self.chunks[0]  # type: ignore[return-value]
        if not self.chunks:
            self.add(np.zeros(0, np.int32), np.zeros((0, len(MEASURES)), np.int32), *_nothing())
            return self.merged()
        keys, counts, work, wide, told = (np.concatenate(column) for column in zip(*self.chunks, strict=True))
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = run_starts(keys)
        merged = (
            keys[starts],
            np.add.reduceat(counts[order], starts, axis=0, dtype=np.int32),
            np.add.reduceat(work[order], starts),
            np.logical_or.reduceat(wide[order], starts),
            np.logical_or.reduceat(told[order], starts),
        )
        self.chunks, self.is_merged = [merged], True
        return merged

    def narrow_work(self) -> tuple[Array, Array]:
        """(keys, work) of what was not rolled up, each key once."""
        if self.narrow is None:
            keys, _, work, wide, _ = self.merged()
            self.narrow = (keys[~wide], work[~wide]) if wide.any() else (keys, work)
        return self.narrow  # type: ignore[no-any-return]

    def settle(self) -> None:
        """The step is taken back no more: keep what leaves the window with it, and nothing else."""
        keys, counts, work, wide, told = self.merged()
        self.chunks = [(keys, counts[:, : len(WINDOWED)].copy(), work, wide, told)]
        self.cell_chunks, self.wide_bucket_chunks, self.wide_sampled = [], [], []
        self.undo = None

    def cells(self) -> tuple[Integers, Integers]:
        """(codes, nets) of the backlog cells, each code once."""
        self.cell_chunks = _one(self.cell_chunks)
        return self.cell_chunks[0]

    def buckets(self) -> tuple[Integers, Integers]:
        """(codes, counts) of the cells of processing histograms, each code once."""
        self.bucket_chunks = _one(self.bucket_chunks)
        return self.bucket_chunks[0]

    def wide_buckets(self) -> tuple[Integers, Integers]:
        """As :meth:`buckets`, of rolled-up buckets of time."""
        self.wide_bucket_chunks = _one(self.wide_bucket_chunks)
        return self.wide_bucket_chunks[0]


def _one(chunks: list[tuple[Integers, Integers]]) -> list[tuple[Integers, Integers]]:
    """All ``chunks`` of (codes, amounts) as one, each code once, in order."""
    if len(chunks) == 1:
        return chunks
    codes = [codes for codes, _ in chunks] or [np.empty(0, np.int64)]
    amounts = [amounts for _, amounts in chunks] or [np.empty(0, np.int64)]
    return [summed(np.concatenate(codes), np.concatenate(amounts))]


def _nothing() -> tuple[Array, Array, Array]:
    return np.zeros(0, np.float64), np.zeros(0, bool), np.zeros(0, bool)
