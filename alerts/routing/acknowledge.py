"""Acknowledgements: somebody looks after an alert. It is not repeated meanwhile; who forgets it is reminded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """``by`` looks after the alert with this fingerprint since ``at``, an instant of the engine's clock.

    It ends when the alert resolves, or when somebody takes it back.
    """

    fingerprint: str
    by: str
    comment: str
    at: datetime

    def last_reminder(self, now: datetime, every: timedelta) -> datetime | None:
        """When a reminder fell due last, one ``every`` so often from the acknowledgement on; None before the first."""
        times = (now - self.at) // every
        return self.at + times * every if times >= 1 else None

    def next_reminder(self, now: datetime, every: timedelta) -> datetime:
        """When the next one falls due."""
        return self.at + (max((now - self.at) // every, 0) + 1) * every
