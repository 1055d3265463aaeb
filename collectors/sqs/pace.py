"""How fast to ask: as fast as it goes until a service throttles, then a little less than it stands."""

from __future__ import annotations

import threading
from collections import deque

#: What remains of the rate after a refusal, its growth a second in shares of that, and how long it is kept in mind.
_CUT, _GROWTH, _MEMORY = 0.7, 0.1, 60.0
#: Refusals of one moment are one: the requests were under way together.
_ONE_MOMENT = 0.5
_LEAST = 1.0
#: The shortest time over which a rate is measured, in seconds: a reading may be refused as it begins.
_SHORTEST = 0.1


class Pace:
    """Additive increase, multiplicative decrease of the rate of requests, shared by threads; ``now`` is monotonic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: deque[float] = deque(maxlen=256)
        self._base: float | None = None
        self._cut_at = 0.0
        self._next = 0.0

    def take(self, now: float) -> float:
        """A place in the order of requests: how many seconds to wait before this one is made."""
        with self._lock:
            rate = self._rate(now)
            at = now if rate is None else max(now, self._next)
            if rate is not None:
                self._next = at + 1 / rate
            self._sent.append(at)
            return at - now

    def throttled(self, now: float) -> None:
        """The service refused a request because there were too many."""
        with self._lock:
            rate = self._rate(now)
            if rate is not None and now - self._cut_at < _ONE_MOMENT:
                return
            made = [at for at in self._sent if now - 1 < at <= now]
            measured = len(made) / max(now - min(made, default=now), _SHORTEST)
            self._base = max(_LEAST, _CUT * (measured if rate is None else min(rate, measured)))
            self._cut_at, self._next = now, now

    def rate(self, now: float) -> float | None:
        """Requests a second that are made at most; None while there is no bound."""
        with self._lock:
            return self._rate(now)

    def _rate(self, now: float) -> float | None:
        if self._base is not None and now - self._cut_at > _MEMORY:
            self._base = None
        return None if self._base is None else self._base * (1 + _GROWTH * (now - self._cut_at))
