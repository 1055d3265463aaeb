"""How long what is kept: the one place where the maintenance's times come from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lake.making import REPLACED_FOR

MINUTE, HOUR, DAY = 60, 3600, 86_400

#: The tables that get commits by the second and that Spark follows: it lists their whole log for each batch.
STREAMED = ("message_events", "event_summaries")


@dataclass(frozen=True, slots=True)
class Retention:
    """Ages at which history gets coarser, or goes. Levels count back from each broker's newest event (never from the
    future: see :func:`data_time`), bronze from today, replaced files from the wall clock.
    """

    seconds_for: timedelta = timedelta(minutes=15)  # told by the second, then by the minute
    minutes_for: timedelta = timedelta(hours=24)  # told by the minute, then by the hour
    hours_for: timedelta = timedelta(days=400)  # told by the hour, then as one opening balance
    marks_for: timedelta = timedelta(hours=48)  # failures and retries remembered one by one, once they are settled
    bronze_for: timedelta | None = None  # records as they were written; None: for ever
    replaced_for: timedelta = REPLACED_FOR  # files and log entries that newer ones replaced
    versions_for: timedelta = timedelta(hours=24)  # the lake as it was each ten minutes (retained_versions.py)
    event_log_for: timedelta = timedelta(minutes=2)  # the same, for log entries of the tables that streams follow

    def log_for(self, table: str) -> timedelta:
        """How long log entries of ``table`` stay that newer ones replaced."""
        return min(self.event_log_for, self.replaced_for) if table in STREAMED else self.replaced_for


def data_time(newest: datetime, now: datetime) -> datetime:
    """The newest event's time, as far as it can be true: one event from the future must not age all the others."""
    return min(newest, now)


def floor(time: datetime, seconds: int) -> datetime:
    """The last multiple of ``seconds`` since 1970 that is not after ``time``."""
    return datetime.fromtimestamp(int(time.timestamp()) // seconds * seconds, UTC)
