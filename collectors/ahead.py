"""What claims to have happened in the future is refused: it would make old data look fresh as long as it lies ahead.

The newest instant in the lake is data time: rules are evaluated at it, and staleness is measured from it. Every way in
judges by the same limit (:meth:`lake.clock.Clock.latest`) and gives the same :func:`reason`. Where senders are answered
they are told; whatever else comes passes :class:`AheadFilter`. What is refused is kept in ``rejected_records``, as a
record that can be replayed once its time has come.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from collectors.bronze import Around, Bronze
from collectors.isolate import append_rejected
from collectors.records import Rejected, now_us
from collectors.selfmetrics import SelfMetrics
from lake.clock import TOLERANCE, Clock
from lake.schema import TIMESTAMP
from lake.store import reached_by

log = logging.getLogger(__name__)

#: The columns of each table that move data time.
TIMES: Mapping[str, tuple[str, ...]] = {
    "message_events": ("occurred_at",),
    "event_summaries": ("bucket_start", "newest_occurred_at"),
    "queue_samples": ("sampled_at",),
}
#: So many refused rows of one append are kept one by one; of the others the number is kept.
EXAMPLES = 100
_WARN_SECONDS = 60.0


def reason(column: str) -> str:
    """Why a record is refused whose ``column`` lies too far ahead; equal for equal faults."""
    return f"{column}: more than {TOLERANCE.total_seconds():g} s ahead of the clock here"


REASONS = frozenset(reason(column) for columns in TIMES.values() for column in columns)


def microseconds(instant: datetime) -> int:
    """Since 1970, as collectors hold times."""
    return round(instant.timestamp() * 1e6)


def lying_ahead(name: str, rows: pa.Table, latest: datetime) -> tuple[str, pa.ChunkedArray] | None:
    """Which of ``rows`` of table ``name`` claim an instant after ``latest``, and a column that does; or None."""
    found: tuple[str, pa.ChunkedArray] | None = None
    for column in TIMES.get(name, ()):
        times = rows[column].cast(TIMESTAMP)
        newest = pc.max(times).as_py()
        if newest is not None and newest > latest:
            ahead = pc.fill_null(pc.greater(times, pa.scalar(latest, TIMESTAMP)), False)
            found = (column, ahead) if found is None else (found[0], pc.or_(found[1], ahead))
    return found


class AheadFilter(Around):
    """Bronze that takes nothing from the future; everything else it hands on. Belongs to bronze's thread."""

    def __init__(self, bronze: Bronze, clock: Clock, metrics: SelfMetrics) -> None:
        super().__init__(bronze)
        self._clock = clock
        self._metrics = metrics
        self._warned: dict[str, float] = {}

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        app_id: str | None = None,
        version: int | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """Append what has happened; what has not goes to ``rejected_records``, under the same numbers.

        A batch that comes again after a crash finds its refused rows there; by then fewer may lie ahead.
        """
        found = lying_ahead(name, rows, self._clock.latest())
        if found is not None:
            column, ahead = found
            reached = reached_by(app_id, version, positions)
            numbered = {f"{key}{'/' if '#' in key else '#'}{name}-ahead": at for key, at in reached.items()}
            self._refuse(rows.filter(ahead), column, numbered)
            rows = rows.filter(pc.invert(ahead))
        return self._bronze.append(name, rows, app_id=app_id, version=version, positions=positions)

    def _refuse(self, rows: pa.Table, column: str, numbered: Mapping[str, int]) -> None:
        source = rows["source"][0].as_py()
        shown = rows.slice(0, EXAMPLES).to_pylist()
        now, why = now_us(), reason(column)
        records = [Rejected(0, now, why, json.dumps(row, default=str, ensure_ascii=True)) for row in shown]
        if rows.num_rows > EXAMPLES:
            records.append(Rejected(0, now, why, "", rows.num_rows - EXAMPLES))
        append_rejected(self._bronze, records, source, positions=numbered)
        self._metrics.ahead.labels(source).inc(rows.num_rows)
        self._metrics.rejected.labels(source).inc(rows.num_rows)
        if now / 1e6 - self._warned.get(source, 0.0) > _WARN_SECONDS:
            self._warned[source] = now / 1e6
            log.warning("%s: %d records refused, %s: whose clock is wrong?", source, rows.num_rows, why)
