"""Looks that are rehearsed while it is calm: the first one at a flood must not be what everything is read for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from alerts.control.active_limit import Target
from alerts.control.observe import Query, Usually, observe
from alerts.control.pace import Pace
from alerts.control.spans import BRIEF_SECONDS
from lake.errors import SojournError

log = logging.getLogger(__name__)


class Rehearsal:
    """Asks what looks ask, about a queue of each broker, when :class:`~alerts.control.pace.Pace` says so: the next ones
    find their statements understood, and history read up to then.

    ``recent``, ``usual`` (seconds) and ``signals`` are those of the looks. Belongs to one thread.
    """

    def __init__(self, pace: Pace, recent: int, usual: int, signals: Mapping[str, float]) -> None:
        self._pace = pace
        self._recent, self._usual, self._signals = recent, usual, signals
        self._understood = False

    def step(self, now: datetime, query: Query, ahead: timedelta) -> None:
        """Rehearse, where it is time; the wall clock is ``ahead`` of ``now``."""
        if not self._pace.rehearses(now.timestamp()):
            return
        try:
            if not self._rehearse(now, query, ahead):
                self._pace.forget()
        except SojournError as error:
            log.warning("looks are not rehearsed: %s", error)

    def _rehearse(self, now: datetime, query: Query, ahead: timedelta) -> bool:
        found = query("SELECT broker, MIN(queue) AS queue FROM tenant_backlog_now GROUP BY broker").to_pylist()
        usual, brief = (0, 0) if self._understood else (self._usual, BRIEF_SECONDS)
        for row in found:
            target, remembered = Target(row["broker"], row["queue"], ""), Usually()
            for _ in range(2 if usual else 1):  # what is usual is asked by the first alone
                observe(query, [target], now, self._recent, ahead, {}, self._signals, usual, remembered, brief)
        self._understood |= bool(found)
        return bool(found)
