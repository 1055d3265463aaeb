"""Limits in force that an earlier process left, moved once to the clock of this one."""

from __future__ import annotations

from dataclasses import replace

from alerts.control.active_limit import ActiveLimit


def moved(active: ActiveLimit, by: float, now: float, lease_seconds: float) -> ActiveLimit:
    """``active`` with its instants moved ``by`` seconds; none lies ahead of ``now``, its lease ends in time.

    So a clock that was set back while nobody ran lengthens no lease: it ends after ``lease_seconds`` at the latest.
    """
    limit = active.limit
    watch = None if limit.watch is None else replace(limit.watch, at=min(limit.watch.at + by, now))
    return replace(
        active,
        limit=replace(
            limit,
            valid_until=min(limit.valid_until + by, now + lease_seconds),
            changed_at=min(limit.changed_at + by, now),
            gone_since=None if limit.gone_since is None else min(limit.gone_since + by, now),
            watch=watch,
            base_at=None if limit.base_at is None else min(limit.base_at + by, now),
        ),
    )
