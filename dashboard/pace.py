"""How often the lake is asked: a part of the time goes into it, and no more."""

from __future__ import annotations

import math
from threading import Lock
from typing import Any


class Pace:
    """When the lake may be asked anew: at most one part in ``share`` of the time goes into asking.

    A lake too large to be read as often as pages renew themselves is shown a little later, with its age, and leaves
    the machine to others. What waits for its turn costs as well, so that on a busy machine many questions seem to
    cost a lot: ``most_seconds`` after the last round the next one may come whatever that has cost.
    """

    def __init__(self, share: int, most_seconds: float = math.inf) -> None:
        self._share = share
        self._most_seconds = most_seconds
        self._lock = Lock()
        self._token: tuple[Any, ...] | None = None
        self._begun = 0.0
        self._spent = 0.0

    def token(self, newest: tuple[Any, ...], now: float) -> tuple[Any, ...]:
        """``newest`` if history may be renewed at ``now`` (monotonic seconds), else the token it was last asked at."""
        with self._lock:
            rest = min(self._share * self._spent, self._most_seconds)
            if self._token is None or (newest != self._token and now - self._begun >= rest):
                self._token, self._begun, self._spent = newest, now, 0.0
            return self._token

    def spent(self, seconds: float) -> None:
        """Remember what this round of questions has cost."""
        with self._lock:
            self._spent += seconds
