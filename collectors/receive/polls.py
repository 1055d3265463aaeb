"""Polls that consumers tell of, one by one or as differences, added up to the totals that samples carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from collectors.samples import METRIC_NAMES, Sample, samples_table

#: So many queues are counted; of one more, the one that was polled longest ago begins anew, as after a restart.
MOST_QUEUES = 20_000
#: Beyond it a total begins anew: it is a column of 64 bits.
MOST_POLLS = 2**62
_NOT_TOLD = "told by the client, which counts its polls alone"
_EMPTY_NOT_TOLD = "the receive spans do not say how many messages they brought"

Where = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class PollCount:
    """Polls of one (broker, queue, subscriber); ``empty`` is None where that is not told."""

    where: Where
    polls: int
    empty: int | None


class PollTotals:
    """Rising totals; they begin at 0 where no recent ones are known, as every counter may."""

    def __init__(self) -> None:
        self._totals: dict[Where, PollCount] = {}

    def with_added(self, counts: Iterable[PollCount]) -> dict[Where, PollCount]:
        """The new totals of the queues in ``counts``, which :meth:`keep` makes the totals once they are durable."""
        changed: dict[Where, PollCount] = {}
        for count in counts:
            before = changed.get(count.where) or self._totals.get(count.where)
            if before is None or max(before.polls, before.empty or 0) > MOST_POLLS:
                before = PollCount(count.where, 0, 0)
            unknown = count.empty is None or before.empty is None
            empty = None if unknown else (before.empty or 0) + (count.empty or 0)
            changed[count.where] = PollCount(count.where, before.polls + count.polls, empty)
        return changed

    def keep(self, changed: dict[Where, PollCount]) -> None:
        """Go on from ``changed``."""
        for where, count in changed.items():
            self._totals.pop(where, None)
            self._totals[where] = count
        while len(self._totals) > MOST_QUEUES:
            self._totals.pop(next(iter(self._totals)))


def totals_table(totals: Iterable[PollCount], sampled_at: int, source: str) -> pa.Table:
    """``totals`` as rows of ``queue_samples``: nothing but the two counters is known here."""
    by_broker: dict[str, list[Sample]] = {}
    for total in totals:
        broker, queue, subscriber = total.where
        unavailable = {name: _NOT_TOLD for name in METRIC_NAMES if not name.startswith(("polls_", "empty_polls_"))}
        if total.empty is None:
            unavailable["empty_polls_total"] = _EMPTY_NOT_TOLD
        sample = Sample(
            queue,
            sampled_at,
            subscriber,
            polls_total=total.polls,
            empty_polls_total=total.empty,
            staleness_seconds=None,
            unavailable=unavailable,
        )
        by_broker.setdefault(broker, []).append(sample)
    return _joined([samples_table(samples, broker, source) for broker, samples in by_broker.items()])


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables)
