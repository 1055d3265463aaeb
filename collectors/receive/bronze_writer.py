"""What the receiver wrote to each bronze table, and what it must remember to write nothing twice.

Events are told apart by their ids (:class:`collectors.receive.horizon.Horizon`). Summaries, polls and publishes have
none: their request's sequence is committed with them as the Delta transaction version of its sender, in each table of
its own, so that a crash between two tables leaves each either with them or without.

An append may fail after it was written: the disk was full for what follows a commit, Kafka's answer did not come. Each
therefore has a number of our own, too, by which :meth:`BronzeWriter.settle` finds out before anything is read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from collectors.bronze import Bronze
from collectors.isolate import Row, RowIsolator, append_rejected, halved, is_of_rows, rejected, sifted
from collectors.receive.events import Sent
from collectors.receive.horizon import Horizon
from collectors.receive.identity import Keys
from collectors.receive.polls import PollCount, PollTotals, totals_table
from collectors.receive.publishes import PublishCount, publishes_table
from collectors.receive.sampled import ESTIMATED, reported
from collectors.receive.summaries import summaries_table
from collectors.records import Rejected, now_us
from lake.store import conform
from lake.tables import QUEUE_SAMPLES

log = logging.getLogger(__name__)

_NUMBERED = ("message_events", "queue_samples", "event_summaries")
_TABLES = (*_NUMBERED, "rejected_records")
#: Senders whose last sequence is kept at hand; that of others is read from the table.
_MOST_SENDERS = 50_000


class BronzeWriter:
    """Belongs to the lake's thread. ``app_id`` numbers the commits by the time of the commit."""

    def __init__(self, app_id: str, source: str, horizon: Horizon, compact_every: int) -> None:
        self._app_id = app_id
        self._source = source
        self._horizon = horizon
        self.totals = PollTotals()
        self._reached: dict[tuple[str, str], int] = {}
        self._version = 0
        self._unsure: tuple[str, Mapping[str, int], Callable[[], None]] | None = None
        self._compact_every = compact_every
        self._commits = 0

    @property
    def unsure(self) -> bool:
        """Whether an append failed, and may have been written all the same: then :meth:`settle`, before reading on."""
        return self._unsure is not None

    def settle(self, bronze: Bronze) -> bool:
        """Know what the append that failed has written, if it has; whether it has."""
        if self._unsure is None:
            return False
        table, positions, keep = self._unsure
        written = all((bronze.committed(table, app_id) or 0) >= version for app_id, version in positions.items())
        if written:
            keep()
        self._unsure = None
        return written

    def begun(self, bronze: Bronze) -> int | None:
        """When events were committed last, microseconds; None where never. To be called before the first commit."""
        self._finished(bronze)
        self._version = max(bronze.committed(table, self._app_id) or 0 for table in _NUMBERED)
        return bronze.committed("message_events", self._app_id)

    def _finished(self, bronze: Bronze) -> RowIsolator:
        """What sets rows apart, after it has finished what was begun before."""
        isolator = RowIsolator(bronze, self._source, self._app_id)
        if isolator.begun:
            isolator.recover()
            self._reached.clear()  # senders may have come further
        return isolator

    def events(self, bronze: Bronze, table: pa.Table, keys: Sequence[Keys]) -> list[Rejected]:
        """Append new events, then know them again; returns the records of those that cannot be written."""
        known = np.concatenate(keys)
        refused: list[Rejected] = []

        def take(begin: int, stop: int) -> None:
            piece = table.slice(begin, stop - begin)
            self._try(bronze, "message_events", piece, {}, lambda: self._know([known[begin:stop]]))

        def refuse(begin: int, stop: int, error: Exception) -> None:
            refused.append(rejected(table.slice(begin, stop - begin), error))

        halved(0, table.num_rows, take, refuse)
        return refused

    def _try(
        self, bronze: Bronze, name: str, rows: pa.Table, positions: Mapping[str, int], keep: Callable[[], None]
    ) -> None:
        """As :meth:`_append`; an error is raised where nothing was written, and then it is known that nothing was."""
        try:
            self._append(bronze, name, rows, positions, keep)
        except Exception as error:
            if not is_of_rows(error) or not self.settle(bronze):
                raise

    def _append(
        self, bronze: Bronze, name: str, rows: pa.Table, positions: Mapping[str, int], keep: Callable[[], None]
    ) -> None:
        """Append ``rows``, then ``keep`` in mind what they were."""
        self._version = max(now_us(), self._version + 1)
        numbered = {self._app_id: self._version, **positions}
        self._unsure = name, numbered, keep
        bronze.append(name, rows, positions=numbered)
        self._unsure = None
        keep()

    def _know(self, keys: Iterable[Keys]) -> None:
        for each in keys:
            self._horizon.add(each, time.monotonic())

    def summaries(
        self,
        bronze: Bronze,
        requests: Sequence[Sent],
        single: Sequence[dict[str, Any]],
        estimates: Sequence[dict[str, Any]],
        keys: Iterable[Keys],
    ) -> list[Rejected]:
        """Append the summaries of requests that were not committed before, ``single`` ones that spans held, and
        ``estimates`` that stand for sampled spans.

        Returns the records of those of which no row can be made.
        """
        self._finished(bronze)
        fresh, positions = self._fresh(bronze, "event_summaries", [sent for sent in requests if sent.summaries])
        rows = [*single, *(row for sent in fresh for row in sent.summaries)]

        def keep() -> None:
            self._keep("event_summaries", positions)
            self._know(keys)

        good, bad = _buildable(rows, lambda some: summaries_table(some, "client"))
        fair, unfair = _buildable(estimates, lambda some: summaries_table(some, ESTIMATED))
        if rows or estimates:
            table = pa.concat_tables([summaries_table(good, "client"), summaries_table(fair, ESTIMATED)])
            self._write(bronze, "event_summaries", table, positions, keep)
        if fair:  # the views say so: what is summed up shows no source
            self._write(bronze, "queue_samples", reported(fair, now_us()), {}, lambda: None)
        return bad + unfair

    def _write(
        self, bronze: Bronze, name: str, rows: pa.Table, positions: Mapping[str, int], keep: Callable[[], None]
    ) -> None:
        """Append ``rows``, whose requests' sequences are ``positions``; row by row where it must be."""
        try:
            self._try(bronze, name, rows, positions, keep)
        except Exception as error:
            if not is_of_rows(error):
                raise
            log.exception("%s: a batch cannot be written as it is: its rows are set apart", self._source)
            self._version = max(now_us(), self._version + 1)
            self._finished(bronze).append(name, rows, {self._app_id: self._version, **positions})
            keep()

    def counts(
        self,
        bronze: Bronze,
        requests: Sequence[Sent],
        polled: Sequence[PollCount],
        published: Sequence[PublishCount],
        keys: Iterable[Keys],
    ) -> list[Rejected]:
        """Append the new totals of queues that were polled, and what became of publishes, as spans and requests not
        committed before tell: both with one commit, for both are known again by their request's sequence.

        Returns the records of those of which no row can be made.
        """
        counting = [sent for sent in requests if sent.polls or sent.publishes]
        fresh, positions = self._fresh(bronze, "queue_samples", counting)
        changed = self.totals.with_added([*polled, *(count for sent in fresh for count in sent.polls)])
        published = [*published, *(count for sent in fresh for count in sent.publishes)]

        def keep() -> None:
            self.totals.keep(changed)
            self._keep("queue_samples", positions)
            self._know(keys)

        now, schema = now_us(), QUEUE_SAMPLES.schema
        good, bad = _buildable(list(changed.values()), lambda some: totals_table(some, now, self._source))
        fair, unfair = _buildable(published, lambda some: publishes_table(some, now, self._source))
        if changed or published:
            totals = conform(totals_table(good, now, self._source), schema) if good else schema.empty_table()
            rows = pa.concat_tables([totals, publishes_table(fair, now, self._source)])
            self._write(bronze, "queue_samples", rows, positions, keep)
        return bad + unfair

    def rejected(self, bronze: Bronze, records: Sequence[Rejected]) -> None:
        """Append records that could not be read. They come last: those of a request that comes again are told again."""
        append_rejected(bronze, records, self._source)

    def compact(self, bronze: Bronze) -> None:
        """After every so many commits, make the tables cheaper to read."""
        self._commits += 1
        if self._commits % self._compact_every == 0:
            for name in _TABLES:
                bronze.compact(name)

    def _fresh(self, bronze: Bronze, table: str, requests: Sequence[Sent]) -> tuple[list[Sent], dict[str, int]]:
        """Requests that ``table`` does not have yet, each once, and the sequences to be committed with them."""
        fresh: list[Sent] = []
        positions: dict[str, int] = {}
        for sent in sorted(requests, key=lambda one: one.sequence):
            app_id = f"{self._app_id}#{quote(sent.sender, safe='')}"  # of our own source, as a transport tells sources
            reached = positions.get(app_id)
            if reached is None:
                reached = self._reached.get((table, app_id))
            if reached is None:
                reached = bronze.committed(table, app_id)
            if reached is None or sent.sequence > reached:
                fresh.append(sent)
                positions[app_id] = sent.sequence
        return fresh, positions

    def _keep(self, table: str, positions: dict[str, int]) -> None:
        for app_id, sequence in positions.items():
            self._reached.pop((table, app_id), None)
            self._reached[table, app_id] = sequence
        while len(self._reached) > _MOST_SENDERS:
            self._reached.pop(next(iter(self._reached)))


def _buildable(rows: Sequence[Row], build: Callable[[Sequence[Row]], pa.Table]) -> tuple[list[Row], list[Rejected]]:
    """The rows that ``build`` makes a table of, and the records of the others."""
    try:
        if rows:
            build(rows)
        return list(rows), []
    except Exception as error:
        if not is_of_rows(error):
            raise
    return sifted(rows, build)
