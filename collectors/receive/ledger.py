"""What the receiver wrote to each bronze table, and what it must remember to write nothing twice.

Events are told apart by their ids (:class:`collectors.receive.horizon.Horizon`). Summaries and polls have none: their
request's sequence is committed with them as the Delta transaction version of its sender, in each table of its own, so
that a crash between two tables leaves each either with them or without.

An append may fail after it was written: the disk was full for what follows a commit, Kafka's answer did not come. Each
therefore has a number of our own, too, by which :meth:`Ledger.settle` finds out before anything is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from collectors.bronze import Bronze
from collectors.receive.events import Sent
from collectors.receive.horizon import Horizon
from collectors.receive.identity import Keys
from collectors.receive.polls import PollCount, PollTotals, totals_table
from collectors.receive.summaries import summaries_table
from collectors.records import Rejected, now_us, rejected_table

_NUMBERED = ("message_events", "queue_samples", "event_summaries")
_TABLES = (*_NUMBERED, "rejected_records")
#: Senders whose last sequence is kept at hand; that of others is read from the table.
_MOST_SENDERS = 50_000


class Ledger:
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

    def settle(self, bronze: Bronze) -> None:
        """Know what the append that failed has written, if it has."""
        if self._unsure is None:
            return
        table, positions, keep = self._unsure
        if all((bronze.committed(table, app_id) or 0) >= version for app_id, version in positions.items()):
            keep()
        self._unsure = None

    def begun(self, bronze: Bronze) -> int | None:
        """When events were committed last, microseconds; None where never. To be called before the first commit."""
        self._version = max(bronze.committed(table, self._app_id) or 0 for table in _NUMBERED)
        return bronze.committed("message_events", self._app_id)

    def events(self, bronze: Bronze, table: pa.Table, keys: Iterable[Keys]) -> None:
        """Append new events, then know them again."""
        self._append(bronze, "message_events", table, {}, lambda: self._know(keys))

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
        self, bronze: Bronze, requests: Sequence[Sent], single: Sequence[dict[str, Any]], keys: Iterable[Keys]
    ) -> None:
        """Append the summaries of requests that were not committed before, and ``single`` ones that spans held."""
        fresh, positions = self._fresh(bronze, "event_summaries", [sent for sent in requests if sent.summaries])
        rows = [*single, *(row for sent in fresh for row in sent.summaries)]

        def keep() -> None:
            self._keep("event_summaries", positions)
            self._know(keys)

        if rows:
            self._append(bronze, "event_summaries", summaries_table(rows, "client"), positions, keep)

    def polls(
        self, bronze: Bronze, requests: Sequence[Sent], single: Sequence[PollCount], keys: Iterable[Keys]
    ) -> None:
        """Append the new totals of queues that were polled, as single spans and requests not committed before tell."""
        fresh, positions = self._fresh(bronze, "queue_samples", [sent for sent in requests if sent.polls])
        changed = self.totals.with_added([*single, *(count for sent in fresh for count in sent.polls)])

        def keep() -> None:
            self.totals.keep(changed)
            self._keep("queue_samples", positions)
            self._know(keys)

        if changed:
            rows = totals_table(changed.values(), now_us(), self._source)
            self._append(bronze, "queue_samples", rows, positions, keep)

    def rejected(self, bronze: Bronze, rejected: Sequence[Rejected]) -> None:
        """Append records that could not be read. They come last: those of a request that comes again are told again."""
        bronze.append("rejected_records", rejected_table(rejected, self._source))

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
