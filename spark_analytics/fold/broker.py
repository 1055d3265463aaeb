"""The folds of one broker: one of all its queues but those of which something came too late to be told in its place.

Nothing of one queue changes another, but for what its dead-letter queues hold. So what comes too late for one is no
reason to fold the others again: its past is folded anew, a little at a time, beside the live rows, and the queue has a
fold of its own from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lake.remote import Location
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.past import Advance, Part, fold_past
from spark_analytics.fold.samples import Samples, read_samples


@dataclass(slots=True)
class Correction:
    """A queue's past that is being folded anew by ``work``, bit by bit, and what ``came`` for it since that began."""

    part: Part
    work: Iterator[None]
    came: list[tuple[str, pa.Table]] = field(default_factory=list)


class Broker:
    """Folds of broker ``name``, of which ``fold`` has all queues so far."""

    def __init__(self, name: str, fold: Fold, samples: Samples) -> None:
        self.name, self.whole = name, Part(name, fold)
        self.apart: dict[str, Part] = {}
        self.corrections: dict[str, Correction] = {}
        self._samples = samples

    @property
    def parts(self) -> list[Part]:
        """All of its folds, the one of most queues first."""
        return [self.whole, *self.apart.values()]

    @property
    def folds(self) -> list[Fold]:
        """The same without what is remembered beside them."""
        return [part.fold for part in self.parts]

    @property
    def late(self) -> dict[str, int]:
        """By queue the first second of which something came too late to be told where it belongs."""
        return {queue: second for fold in self.folds for queue, second in fold.late.items()}

    def add(self, table: str, rows: pa.Table) -> None:
        """Take in ``rows`` of ``table``, all of them about this broker. Raises RebuildRequired."""
        for queue, correction in self.corrections.items():
            if (its := rows_about(queue, rows)).num_rows:
                correction.came.append((table, its))
        others = rows
        if self.apart and table != "queue_samples":  # of which the others' fold has all, for dead-letter queues' sake
            apart = pa.array(list(self.apart), pa.string())
            others = rows.filter(pc.invert(pc.is_in(rows.column("queue").cast(pa.string()), apart)))
        if others.num_rows:
            self.whole.add(table, others, self._samples)
        for queue, part in self.apart.items():
            if (its := rows_about(queue, rows)).num_rows:
                part.add(table, its, self._samples)

    def advance(self, advance: Advance) -> None:
        """Have every fold go on to data time."""
        for part in self.parts:
            if self.apart:
                part.step_now()
            part.advance(advance)

    def begin_correction(
        self, queue: str, fold: Fold, files: Mapping[str, list[Location]], advance: Advance
    ) -> Correction:
        """Have the past of ``queue``, which the ``files`` of tables tell of, folded anew by ``fold``, an empty one."""
        fold.only = frozenset({queue})
        fold.as_of_us, fold.opened_until = self.whole.fold.as_of_us, self.whole.fold.opened_until
        part = Part(self.name, fold)
        correction = self.corrections[queue] = Correction(part, self._past(queue, part, files, advance))
        return correction

    def _past(self, queue: str, part: Part, files: Mapping[str, list[Location]], advance: Advance) -> Iterator[None]:
        def its(rows: pa.Table) -> pa.Table:
            return rows_about(queue, rows.filter(pc.equal(rows.column("broker"), self.name)))

        for path in files["queue_samples"]:
            part.add("queue_samples", its(read_samples(path)), self._samples)
            yield
        yield from fold_past(files, {self.name: part}, advance, chosen=its)

    def end_correction(self, queue: str, advance: Advance) -> Part:
        """Take in what came meanwhile; the part that has ``queue`` from now on."""
        correction = self.corrections.pop(queue)
        part = correction.part
        part.fold.patient = True
        part.fold.reach(self.whole.fold.as_of_us)
        for table, rows in correction.came:
            part.add(table, rows, self._samples)
        part.step_now()
        part.advance(advance)
        self.whole.pauses.leave(queue)
        self.whole.fold.left_out.add(queue)
        self.whole.fold.late.pop(queue, None)
        self.apart[queue] = part
        return part


def rows_about(queue: str, rows: pa.Table) -> pa.Table:
    """Those of ``rows`` that are about ``queue``, or samples of a dead-letter queue of it."""
    about = pc.equal(rows.column("queue"), queue)
    if "dead_letter_for" in rows.column_names:
        about = pc.or_(about, pc.fill_null(pc.match_substring(rows.column("dead_letter_for"), queue), False))
    return rows.filter(about)
