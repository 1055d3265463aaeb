"""Records of a partition as rows of ``message_events``, column by column."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from collectors.kafka.tap.records import Records
from lake.schema import TIMESTAMP

SEEN_IN_COMMIT = "received and completed at the latest then: seen in the offset that the group committed"
REMOVED = "removed by retention before the group had read it"
MADE_ANEW = "its topic was deleted before the group had read it"

_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes the rows of one partition; ``label`` (topic-partition) begins its message ids."""

    broker: str
    queue: str
    label: str

    def enqueued(self, records: Records, now: int) -> pa.Table:
        """Their arrival, when their own time says; not later than ``now``, where a producer's clock is ahead."""
        return self._rows("enqueued", None, None, records, pc.min_element_wise(records.stamps, now), None)

    def completed(self, records: Records, subscriber: str | None, at: int) -> pa.Table:
        """Receipt and completion, both by ``at``: more is not told by a committed offset."""
        when = pa.repeat(pa.scalar(at, pa.int64()), len(records))
        return pa.concat_tables(
            [self._rows(kind, subscriber, 1, records, when, SEEN_IN_COMMIT) for kind in ("received", "completed")]
        )

    def expired(self, records: Records, subscriber: str | None, at: int, reason: str) -> pa.Table:
        """Their end without having been read."""
        when = pa.repeat(pa.scalar(at, pa.int64()), len(records))
        return self._rows("expired", subscriber, None, records, when, reason)

    def _rows(
        self,
        kind: str,
        subscriber: str | None,
        attempt: int | None,
        records: Records,
        occurred_at: pa.Array,
        reason: str | None,
    ) -> pa.Table:
        count = len(records)
        offsets = records.offsets.cast(_TEXT)

        def same(value: object, kind: pa.DataType = _TEXT) -> pa.Array:
            return pa.repeat(pa.scalar(value, kind), count)

        return pa.table(
            {
                "event_id": pc.binary_join_element_wise(self._event(kind, subscriber, attempt), offsets, "-"),
                "event_type": same(kind),
                "broker": same(self.broker),
                "queue": same(self.queue),
                "subscriber": same(subscriber),
                "tenant": records.tenants,
                "message_id": pc.binary_join_element_wise(self.label, offsets, "-"),
                "attempt": same(attempt, pa.int32()),
                "enqueued_at": records.stamps.cast(TIMESTAMP),
                "occurred_at": occurred_at.cast(TIMESTAMP),
                "reason": same(reason),
                "clock": pc.if_else(records.by_broker, "broker", "producer"),
            }
        )

    def _event(self, kind: str, subscriber: str | None, attempt: int | None) -> str:
        """What all events of this kind have in common, as a hash: with the offset behind it, an event's id.

        It tells apart what :func:`collectors.records.event_id` tells apart, at a hash a batch instead of one an event.
        """
        parts = (self.broker, self.queue, subscriber or "", self.label, kind, "" if attempt is None else str(attempt))
        return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
