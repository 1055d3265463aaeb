"""A queue that is folded anew beside its broker's live rows, a little at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from lake.remote import Location
from lake.snapshot import read_file
from spark_analytics.fold import lived
from spark_analytics.fold.apart import Apart, rows_about, samples_about
from spark_analytics.fold.pauses import COLUMNS as MARK_COLUMNS
from spark_analytics.fold.pauses import Mark, marks_of
from spark_analytics.fold.samples import Samples
from spark_analytics.fold.units import row_group, units


class Mending:
    """What was folded of a queue's past so far, and what has come for it since that was begun."""

    def __init__(self, part: Apart, work: Iterator[None]) -> None:
        self.part, self._work = part, work
        self.read = False
        self.rows: list[pa.Table] = []
        self.marks: list[Mark] = []
        self.samples: list[pa.Table] = []

    def read_on(self) -> None:
        """Fold a little more of what was there when it began; :attr:`read` is true once that is all."""
        self.read = next(self._work, self) is self

    def put(
        self,
        broker: str,
        queue: str,
        rows: list[pa.Table],
        marks: list[tuple[str, list[Mark]]],
        samples: list[pa.Table],
    ) -> None:
        """Keep for later what has come for ``queue`` of ``broker``."""
        self.rows += [its for each in rows if (its := rows_about(queue, broker, each)).num_rows]
        self.marks += [mark for its, each in marks if its == broker for mark in each if mark.queue == queue]
        self.samples += [its for each in samples if (its := samples_about(queue, broker, each)).num_rows]


def folding(
    broker: str,
    queue: str,
    part: Apart,
    files: Mapping[str, list[Location]],
    samples: Samples,
    advance: Callable[[int], None],
) -> Iterator[None]:
    """Put the rows of ``files``, those of tables by their names, that are about ``queue`` into its fold in the order of
    their time; ``advance`` takes it up to a second. Yields whenever one may look at something else."""
    fold = part.fold
    for path in files["marks"]:
        for _, marks in marks_of(rows_about(queue, broker, read_file(path, MARK_COLUMNS))):
            fold.add_pauses(part.pauses.add(marks))
        yield
    for path in files["queue_samples"]:
        for _, its in samples.of_brokers(samples_about(queue, broker, samples.read(path)), {broker: fold}):
            fold.add_samples(its)
        yield
    for path, group, starts in sorted(units(files["partials"]), key=lambda unit: unit[2]):
        advance(min(fold.now_second, starts - 1))
        for rows in row_group(path, group, lived.COLUMNS):
            if (its_rows := rows_about(queue, broker, rows)).num_rows:
                fold.add(lived.read(its_rows))
            yield
    advance(fold.now_second)
