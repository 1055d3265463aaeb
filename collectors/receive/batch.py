"""One group of requests on its way into bronze: what it told, what each sender is answered, and the commit."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from collectors import ahead
from collectors.bronze import Bronze
from collectors.isolate import is_of_rows, sifted
from collectors.receive import decode, events, sampled, summaries
from collectors.receive.bronze_writer import BronzeWriter
from collectors.receive.horizon import Horizon
from collectors.receive.identity import NOTHING, Keys, made
from collectors.receive.inbox import Answer, Request
from collectors.receive.polls import PollCount
from collectors.receive.publishes import Publish, PublishCount, single
from collectors.receive.rows import COLUMNS, Row, client_table, shown, skewed, span_table, split
from collectors.receive.spans import SpanReader
from collectors.receive.status import Code
from collectors.receive.told import MessagingSpan, Poll, Told
from collectors.receive.waiting import Waiting
from collectors.records import Rejected, now_us
from lake.clock import Clock

log = logging.getLogger(__name__)

SPANS, CLIENT = "otlp", "client"  # sources in records
_AHEAD = ahead.reason("occurred_at")
_CONTEXT = len(COLUMNS)  # of a span's row
_POLLED, _SUMMARISED, _PUBLISHED = b"p", b"s", b"u"  # letters of keys that stand in no event's id


@dataclass(slots=True)
class Batch:
    """What a group of requests told, ready to be committed. ``answers`` stand beside ``requests``."""

    requests: list[Request]
    answers: list[Answer] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    keys: list[Keys] = field(default_factory=list)
    numbered: list[events.Sent] = field(default_factory=list)
    polls: list[PollCount] = field(default_factory=list)
    publishes: list[PublishCount] = field(default_factory=list)
    count_keys: list[Keys] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)
    estimates: list[dict[str, Any]] = field(default_factory=list)
    summary_keys: list[Keys] = field(default_factory=list)
    rejected: dict[str, Rejected] = field(default_factory=dict)
    unwritten: list[Rejected] = field(default_factory=list)
    held: list[MessagingSpan] = field(default_factory=list)
    released: list[MessagingSpan] = field(default_factory=list)
    spans: int = 0
    ignored: int = 0
    folded: int = 0
    duplicates: int = 0
    skewed: int = 0
    ahead: int = 0
    conflated: int = 0

    @property
    def rows(self) -> int:
        """Events that are new."""
        return sum(table.num_rows for table in self.tables)

    def commit(self, bronze: Bronze, bronze_writer: BronzeWriter) -> None:
        """Write everything durably but what is held, the same again doing no harm; on the lake's thread."""
        refused = bronze_writer.summaries(bronze, self.numbered, self.summaries, self.estimates, self.summary_keys)
        refused += bronze_writer.counts(bronze, self.numbered, self.polls, self.publishes, self.count_keys)
        if self.rows:
            refused += bronze_writer.events(bronze, pa.concat_tables(self.tables), self.keys)
        self.unwritten += refused
        if self.rejected or self.unwritten:
            bronze_writer.rejected(bronze, [*self.rejected.values(), *self.unwritten])

    def refuse(self, reason: str, raw: str) -> None:
        """Count a record that could not be read; the first of its kind is kept whole."""
        first = self.rejected.get(reason)
        self.rejected[reason] = (
            Rejected(0, now_us(), reason, raw) if first is None else first._replace(times=first.times + 1)
        )


class BatchReader:
    """Reads groups of requests, on one thread, each committed before the next is read."""

    def __init__(
        self, spans: SpanReader, horizon: Horizon, most: int, clock: Clock, waiting: Waiting | None = None
    ) -> None:
        self._spans = spans
        self._horizon = horizon
        self._most = most
        self._clock = clock
        self._waiting = Waiting(0.0, 0) if waiting is None else waiting

    def read(self, requests: list[Request]) -> list[Batch]:
        """The group as one batch; where one request breaks our own code, each for itself, and that one refused."""
        try:
            with _no_collection():
                return [self._read(requests)]
        except Exception:
            log.exception("a request could not be read: each of its group is read for itself")
        batches = []
        for request in requests:
            try:
                batches.append(self._read([request], release=False))
            except Exception as error:
                batch = Batch([request], [Answer(Code.INVALID_ARGUMENT, "the request could not be read")])
                reason = f"the receiver could not read it: {type(error).__name__}"
                batch.refuse(reason, decode.shown_bytes(request.body))
                batches.append(batch)
        return batches

    def _read(self, requests: list[Request], *, release: bool = True) -> Batch:
        batch, latest = Batch(requests), ahead.microseconds(self._clock.latest())
        told: dict[int, Told] = {}
        client_rows: list[Row] = []
        for index, request in enumerate(requests):
            try:
                if request.format == "events":
                    sent = events.read(request.body, self._most, latest)
                    batch.answers.append(_take_events(batch, sent, client_rows))
                else:
                    parse = decode.protobuf if request.format == "protobuf" else decode.as_json
                    told[index] = self._spans.sends(parse(request.body))
                    batch.answers.append(Answer(Code.OK))
            except (decode.Malformed, events.Malformed) as malformed:
                status = 413 if isinstance(malformed, events.TooMany) else None
                batch.answers.append(Answer(Code.INVALID_ARGUMENT, str(malformed), status=status))
                batch.refuse(str(malformed), decode.shown_bytes(request.body))
        rows: list[Row] = []
        weighted: list[tuple[Row, int]] = []
        polls: list[Poll] = []
        for one in told.values():
            batch.held += self._spans.rest(one, lambda span: self._waiting.takes(span, len(batch.held)))
        now = self._clock.now().timestamp()
        if release and (self._waiting.is_due(now) or any(one.rows for one in told.values())):
            batch.released = self._waiting.ready(now, self._spans.knows)
            told[-1] = self._spans.release(batch.released)
        for index, one in told.items():
            happened, early = split(one.rows, latest)
            if one.weights:
                weights = one.weights
                weighted += [(row, weights[row[_CONTEXT][:16]]) for row in happened if row[_CONTEXT][:16] in weights]
                happened = [row for row in happened if row[_CONTEXT][:16] not in weights]
            rows += happened
            polls += one.polls
            batch.spans += one.spans
            batch.ignored += one.ignored
            batch.folded += one.folded
            if index >= 0 and (one.refused or early):
                why = one.refused[0][1] if one.refused else _AHEAD
                spans = len({row[_CONTEXT] for row in early})
                batch.answers[index] = Answer(Code.OK, why, rejected=len(one.refused) + spans)
            for span, reason in one.refused:
                raw = "" if reason in batch.rejected else decode.shown(span)
                batch.refuse(reason, raw)
            for row in early:
                batch.refuse(_AHEAD, "" if _AHEAD in batch.rejected else shown(row))
            batch.ahead += len(early)
        for made_of, gathered, source in ((span_table, rows, SPANS), (client_table, client_rows, CLIENT)):
            if gathered:
                table, keys = self._table(batch, made_of, gathered, source)
                batch.tables.append(table)
                batch.keys.append(keys)
                batch.duplicates += len(gathered) - table.num_rows
                batch.skewed += skewed(table)
        self._take_weighted(batch, weighted)
        self._take_polls(batch, polls)
        self._take_publishes(batch, [publish for one in told.values() for publish in one.publishes])
        self._take_reports(batch, [report for one in told.values() for report in one.reports], latest)
        return batch

    def _table(self, batch: Batch, made_of: Any, gathered: list[Row], source: str) -> tuple[pa.Table, Keys]:
        """The rows as a table, those left out of which none can be made."""
        try:
            made: tuple[pa.Table, Keys] = made_of(gathered, self._horizon, source)
            return made
        except Exception as error:
            if not is_of_rows(error):
                raise
        good, bad = sifted(gathered, lambda some: made_of(some, self._horizon, source))
        batch.unwritten += bad
        made = made_of(good, self._horizon, source)
        return made

    def _take_weighted(self, batch: Batch, weighted: Sequence[tuple[Row, int]]) -> None:
        """Events of sampled traces, as summaries: each of them once, as those that stand for themselves."""
        if not weighted:
            return
        contexts, letters, salts = zip(*(row[_CONTEXT : _CONTEXT + 3] for row, _ in weighted), strict=True)
        _, _, keys = made(contexts, letters, salts)
        fresh = self._horizon.new(keys)
        batch.summary_keys.append(keys[fresh])
        batch.estimates += sampled.summaries(compress(weighted, fresh))
        batch.duplicates += len(weighted) - int(fresh.sum())

    def _take_polls(self, batch: Batch, polls: Sequence[Poll]) -> None:
        if not polls:
            return
        count = len(polls)
        _, _, keys = made([poll.context for poll in polls], [_POLLED] * count, [NOTHING] * count)
        fresh = self._horizon.new(keys)
        batch.count_keys.append(keys[fresh])
        for index in np.flatnonzero(fresh):
            poll = polls[int(index)]
            empty = None if poll.empty is None else int(poll.empty)
            batch.polls.append(PollCount((poll.broker, poll.queue, poll.subscriber), 1, empty))

    def _take_publishes(self, batch: Batch, publishes: Sequence[Publish]) -> None:
        if not publishes:
            return
        count = len(publishes)
        _, _, keys = made([publish.context for publish in publishes], [_PUBLISHED] * count, [NOTHING] * count)
        fresh = self._horizon.new(keys)
        batch.count_keys.append(keys[fresh])
        batch.publishes += [single(publish) for publish in compress(publishes, fresh)]

    def _take_reports(self, batch: Batch, reports: Sequence[tuple[bytes, events.Sent]], latest: int) -> None:
        if not reports:
            return
        contexts = [context for context, _ in reports]
        for letter, known in ((_SUMMARISED, batch.summary_keys), (_POLLED, batch.count_keys)):
            _, _, keys = made(contexts, [letter] * len(reports), [NOTHING] * len(reports))
            fresh = self._horizon.new(keys)
            known.append(keys[fresh])
            for index in np.flatnonzero(fresh):
                sent = reports[int(index)][1]
                if letter == _POLLED:
                    batch.polls += sent.polls
                    batch.publishes += sent.publishes
                    continue
                for row in sent.summaries:
                    refused = summaries.ahead(row, latest)
                    if refused is None:
                        batch.summaries.append(row)
                    else:
                        batch.refuse(f"summaries: {refused}", "in a span sojourn.report")
                        batch.ahead += 1
                batch.conflated += sent.conflated
                for what, place, reason in sent.rejected:
                    batch.refuse(f"{what}: {reason}", f"a span sojourn.report, index {place}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's search for cycles: reading makes thousands of small objects and no cycle (a quarter faster)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _take_events(batch: Batch, sent: events.Sent, rows: list[Row]) -> Answer:
    rows += sent.rows
    batch.conflated += sent.conflated
    if sent.numbered:
        batch.numbered.append(sent)
    rejected: list[dict[str, Any]] = []
    for what, index, reason in sent.rejected:
        rejected.append({"list": what, "index": index, "reason": reason})
        batch.refuse(f"{what}: {reason}", f"sender {sent.sender}, sequence {sent.sequence}, index {index}")
        batch.ahead += reason in ahead.REASONS
    answer = {"accepted": len(sent.rows), "rejected": rejected}
    return Answer(Code.OK, body=json.dumps(answer).encode())
