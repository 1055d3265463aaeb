"""One limit as an application keeps it: a token bucket whose lease ends in pass-through."""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

#: A whole token, but for rounding.
_WHOLE = 1 - 1e-9


class Decision(NamedTuple):
    """Whether a message may be sent; true in a boolean context if so.

    ``limited`` tells whether a limit was in force, ``waited_seconds`` how long the call held the message back, and
    ``retry_after_seconds``, where it is refused, when the next one may go at the earliest.
    """

    allowed: bool
    limited: bool = False
    waited_seconds: float = 0.0
    retry_after_seconds: float = 0.0
    reason: str = "no limit"

    def __bool__(self) -> bool:
        return self.allowed


#: The answer where no limit is in force: one object, made once, so that it costs nothing.
PASS = Decision(True)


class Tally:
    """What buckets have granted and refused, counted under the lock that they take anyway.

    Buckets that seldom meet share one: a lock each would be most of what a hundred thousand of them cost.
    """

    __slots__ = ("granted", "lock", "refused")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count anew, under a fresh lock: in the child of a fork, of whose parent another thread may hold the old."""
        self.granted = self.refused = 0
        self.lock = threading.Lock()


class Bucket:
    """A token bucket of ``rate`` messages/s and ``burst`` messages, in force until ``expires_at``.

    It is full at first, or holds ``tokens``. All instants are seconds of one monotonic clock. Safe to use from several
    threads. What it grants and refuses is counted in ``tally``.
    """

    __slots__ = ("_at", "_granted", "_tally", "_tokens", "burst", "expires_at", "rate", "reason")

    def __init__(
        self,
        rate: float,
        burst: float,
        expires_at: float,
        now: float,
        reason: str = "",
        *,
        tokens: float = math.inf,
        tally: Tally | None = None,
    ) -> None:
        self.rate = rate
        self.burst = burst
        self.expires_at = expires_at
        self.reason = reason
        self._tokens = min(tokens, burst)
        self._at = now
        self._granted: Decision | None = None
        self._tally = tally or Tally()

    def take(self, now: float, waits: bool = False) -> float:
        """Take a token: 0.0 if there was one, else the seconds until the next. Who ``waits`` for it is not refused."""
        tally = self._tally
        with tally.lock:
            tokens = self._tokens
            if now > self._at:  # as in _refill, which would cost a call of its own
                tokens += (now - self._at) * self.rate
                if tokens > self.burst:
                    tokens = self.burst
                self._at = now
            if tokens >= _WHOLE:
                self._tokens = tokens - 1 if tokens > 1 else 0.0
                tally.granted += 1
                return 0.0
            self._tokens = tokens
            if not waits:
                tally.refused += 1
            return (1 - tokens) / self.rate

    @property
    def granted(self) -> Decision:
        """The answer to who had a token at once: one object, as long as the terms are the same."""
        granted = self._granted
        if granted is None:
            granted = self._granted = Decision(True, True, reason=self.reason)
        return granted

    def renew(self, rate: float, burst: float, expires_at: float, now: float, reason: str) -> None:
        """New terms for a bucket in use: what it holds is kept, so that no renewal gives a fresh burst."""
        with self._tally.lock:
            self._refill(now)
            self.rate, self.burst, self.expires_at = rate, burst, expires_at
            self.reason, self._granted = reason, None
            self._tokens = min(self._tokens, burst)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now
