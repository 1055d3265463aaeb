"""Instants that an earlier process wrote, moved once to the clock of this one."""

from __future__ import annotations

from datetime import datetime, timedelta

from alerts.store.database import Database, from_us, to_us, transaction
from alerts.store.schema import upsert
from lake.clock import ZERO, Epoch, apart

#: All that durations are reckoned from.
_INSTANTS = {
    "rules": ("evaluated_to",),
    "alerts": ("active_since", "fired_at", "kept_since", "resolved_at"),
    "notified": ("sent_at",),
    "outbox": ("created_at", "next_at"),
    "settled": ("at",),
    "receiver_health": ("failing_since",),
    "silences": ("starts_at", "ends_at", "updated_at"),
    "acknowledgements": ("at",),
    "received": ("starts_at", "ends_at", "updated_at"),
}
_OF_CLOCKS = "'clock_at', 'clock_ahead', 'clock_boot', 'clock_epoch'"
_MICROSECOND = timedelta(microseconds=1)


def note_clock(db: Database, now: datetime, ahead: timedelta) -> None:
    """Remember where the clock and the wall clock stand, as part of the caller's transaction."""
    values = [("clock_at", str(to_us(now))), ("clock_ahead", str(ahead // _MICROSECOND))]
    db.executemany(upsert("meta"), values)


def translate(db: Database, now: datetime, epoch: Epoch | None = None) -> timedelta:
    """Move what the store remembers to the clock of ``epoch``, which shows ``now``; returns by how much it was moved.

    Of one boot of the machine, the two clocks' epochs tell. Otherwise the last process's clock and the wall clock had
    come apart by as much as the wall clock was set meanwhile; if it was also set back while nobody ran, the store's
    last instant is ahead of ``now``: then that is now. Set forward meanwhile, nobody can tell it from time that passed.
    """
    with transaction(db):
        kept = dict(db.execute(f"SELECT key, value FROM meta WHERE key IN ({_OF_CLOCKS})").fetchall())
        by = apart(_epoch(kept), epoch)
        if by is None:
            by = shift_between(
                from_us(int(kept["clock_at"])) if "clock_at" in kept else None,
                int(kept.get("clock_ahead", 0)) * _MICROSECOND,
                now,
            )
        if by:
            for table, columns in _INSTANTS.items():
                moved = ", ".join(f"{column} = {column} + ?" for column in columns)
                db.execute(f"UPDATE {table} SET {moved}", [by // _MICROSECOND] * len(columns))
        note_clock(db, now, ZERO)
        known = ("", "") if epoch is None else (epoch.boot, str(to_us(epoch.at)))
        db.executemany(upsert("meta"), [*zip(("clock_boot", "clock_epoch"), known, strict=True)])
    return by


def _epoch(kept: dict[str, str]) -> Epoch | None:
    return Epoch(kept["clock_boot"], from_us(int(kept["clock_epoch"]))) if kept.get("clock_boot") else None


def shift_between(last: datetime | None, ahead: timedelta, now: datetime) -> timedelta:
    """How far instants move of a process that was last at ``last``, its wall clock ``ahead``; now it is ``now``."""
    if last is not None and last + ahead > now:
        return now - last
    return ahead
