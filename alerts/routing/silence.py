"""Silences: somebody asks not to hear of what matches, for a time. Pure, but for fresh identifiers.

Source of the semantics: prometheus/alertmanager ``silence/silence.go``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from alerts.routing.matchers import Matchers, all_match

#: How long an expired silence can still be looked up.
EXPIRED_KEPT = timedelta(days=5)
#: Matchers of one silence.
MOST_MATCHERS = 50


class SilenceState(StrEnum):
    """Where a silence stands, in Alertmanager's words."""

    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts that meet all of ``matchers`` are not told between the two instants, which are of the engine's clock."""

    id: str
    matchers: Matchers
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str
    updated_at: datetime

    def state(self, now: datetime) -> SilenceState:
        """What it is at ``now``."""
        if now < self.starts_at:
            return SilenceState.PENDING
        return SilenceState.ACTIVE if now < self.ends_at else SilenceState.EXPIRED

    def mutes(self, labels: Mapping[str, str], now: datetime) -> bool:
        """Whether it silences an alert with ``labels`` at ``now``."""
        return self.starts_at <= now < self.ends_at and all_match(self.matchers, labels)


def check(silence: Silence, now: datetime) -> None:
    """ValueError for a silence that nobody can mean: no end, an end that is over, or one that matches everything."""
    if not silence.matchers:
        raise ValueError("a silence has at least one matcher")
    if len(silence.matchers) > MOST_MATCHERS:
        raise ValueError(f"a silence has at most {MOST_MATCHERS} matchers")
    if all(matcher.matches({}) for matcher in silence.matchers):
        raise ValueError("at least one matcher must not match the empty string")
    if silence.ends_at <= silence.starts_at:
        raise ValueError("a silence ends after it starts")
    if silence.ends_at <= now:
        raise ValueError("the end of the silence is in the past")


def changed(wanted: Silence, known: Silence | None, now: datetime) -> tuple[Silence, ...]:
    """The silences to write so that ``wanted`` is in force, which is the last of them.

    The one that it replaces, ``known``, keeps its id where only its end (or, before it began, its start) moves;
    otherwise it expires and a new one begins: what was silenced when stays true. ValueError as :func:`check`.
    """
    check(wanted, now)
    if known is not None and _may_change(known, wanted, now):
        return (replace(wanted, id=known.id, updated_at=now),)
    begun = replace(wanted, id=str(uuid.uuid4()), starts_at=max(wanted.starts_at, now), updated_at=now)
    if known is None or known.state(now) is SilenceState.EXPIRED:
        return (begun,)
    return expired(known, now), begun


def expired(silence: Silence, now: datetime) -> Silence:
    """``silence`` ended at ``now``; one that had not begun never did; one that is over stays as it is."""
    if silence.state(now) is SilenceState.EXPIRED:
        return silence
    return replace(silence, starts_at=min(silence.starts_at, now), ends_at=now, updated_at=now)


def _may_change(known: Silence, wanted: Silence, now: datetime) -> bool:
    if known.matchers != wanted.matchers:
        return False
    state = known.state(now)
    if state is SilenceState.ACTIVE:
        # Others show instants in milliseconds.
        return abs(known.starts_at - wanted.starts_at) < timedelta(milliseconds=1)
    return state is SilenceState.PENDING and wanted.starts_at >= now
