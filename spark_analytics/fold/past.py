"""A past folded from its beginning: files of marks and partials, some rows at a time, into folds that are empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from lake.remote import Location
from lake.snapshot import read_file
from spark_analytics.fold import lived
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.lived import by_broker
from spark_analytics.fold.pauses import COLUMNS as MARK_COLUMNS
from spark_analytics.fold.pauses import Pauses, marks_of
from spark_analytics.fold.samples import Samples
from spark_analytics.fold.state import BACKLOG
from spark_analytics.fold.units import in_order

#: Takes a broker's fold up to a second.
Advance = Callable[[str, Fold, int], None]


class Clocks(NamedTuple):
    """When the newest event of a broker was, and its newest sample, in µs of unix time; None: there is none."""

    event_us: int | None
    sample_us: int | None


@dataclass(slots=True)
class Part:
    """A fold of ``broker``, and what is remembered of the pauses of its messages."""

    broker: str
    fold: Fold
    pauses: Pauses = field(default_factory=Pauses)

    def add(self, table: str, rows: pa.Table, samples: Samples) -> None:
        """Take in ``rows`` of ``table``, all of them about its broker and for this fold. Raises RebuildRequired."""
        match table:
            case "partials":
                self.fold.add(lived.read(rows))
            case "marks":
                self.fold.add_pauses(self.pauses.add(marks_of(rows)))
            case _:
                self.fold.add_samples(samples.of_broker(self.broker, rows, self.fold))

    def advance(self, advance: Advance) -> None:
        """Go on to data time."""
        advance(self.broker, self.fold, self.fold.now_second)
        self.pauses.forget(self.fold.now_second)

    def step_now(self) -> None:
        """Have a step at data time, though it may be another queue's, as long as anything changes with time."""
        fold, state, now = self.fold, self.fold.state, self.fold.now_second
        moving = fold.due or state.window.any() or fold.readings.known.any() or state.queues[:, BACKLOG].any()
        if moving and now > fold.floor and not (fold.done and fold.done[-1].second >= now):
            fold.expect(now)


def fold_past(
    files: Mapping[str, list[Location]],
    parts: Mapping[str, Part],
    advance: Advance,
    *,
    chosen: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    seen: Callable[[Location, pa.Table], None] = lambda path, rows: None,
) -> Iterator[None]:
    """Fold what ``files`` of `marks` and `partials` tell, samples being in already, up to the data time of each broker;
    yields whenever one may look at something else.

    ``chosen`` are the rows that the folds are to have, ``seen`` is given all rows of partials as they are read. Raises
    LakeError.
    """
    for path in files["marks"]:
        for broker, rows in by_broker(chosen(read_file(path, MARK_COLUMNS))):
            if broker in parts:
                parts[broker].fold.add_pauses(parts[broker].pauses.add(marks_of(rows)))
        yield
    for path, rows, start in in_order(files["partials"], lived.COLUMNS):
        seen(path, rows)
        for broker, part in parts.items():
            advance(broker, part.fold, min(part.fold.now_second, start - 1))
        for broker, mine in by_broker(chosen(rows)):
            parts[broker].fold.add(lived.read(mine))
        yield
    for broker, part in parts.items():
        advance(broker, part.fold, part.fold.now_second)
