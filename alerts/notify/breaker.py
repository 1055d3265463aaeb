"""Spares a receiver that does not answer: after some failures one attempt at a time, with pauses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from alerts.notify.retry import backoff

#: Failures in a row, of whatever messages, after which it opens.
FAILURES = 5
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)
#: A new page is not held back for longer, whatever pause was asked for.
LONGEST_REQUESTED = timedelta(minutes=1)


@dataclass(slots=True)
class Breaker:
    """Counts failures in a row of one receiver. Seconds are of a clock that only grows."""

    failures: int = 0
    not_before: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the receiver is tried by single attempts."""
        return self.failures >= FAILURES

    def failed(self, now: float, jitter: float, retry_after: timedelta | None = None) -> bool:
        """An attempt got no answer, or one that asks to come again; whether this opened it.

        A receiver that is sent too much, and names a pause (``retry_after``), means all of its messages.
        """
        self.failures += 1
        pause = min(retry_after or timedelta(0), LONGEST_REQUESTED)
        if self.is_open:
            pause = max(pause, backoff(self.failures - FAILURES + 1, jitter, FIRST_PAUSE, LONGEST_PAUSE))
        self.not_before = max(self.not_before, now + pause.total_seconds())
        return self.failures == FAILURES

    def answered(self) -> bool:
        """An attempt was answered for good; whether this closed it."""
        was_open = self.is_open
        self.failures, self.not_before = 0, 0.0
        return was_open
