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


#: Shared by buckets that seldom meet: a lock each would be most of what a hundred thousand of them cost.
_LOCKS = tuple(threading.Lock() for _ in range(64))


class Bucket:
    """A token bucket of ``rate`` messages/s and ``burst`` messages, in force until ``expires_at``.

    It is full at first, or holds ``tokens``. All instants are seconds of one monotonic clock. Safe to use from several
    threads.
    """

    __slots__ = ("_at", "_granted", "_lock", "_tokens", "burst", "expires_at", "rate", "reason")

    def __init__(
        self, rate: float, burst: float, expires_at: float, now: float, reason: str = "", *, tokens: float = math.inf
    ) -> None:
        self.rate = rate
        self.burst = burst
        self.expires_at = expires_at
        self.reason = reason
        self._tokens = min(tokens, burst)
        self._at = now
        self._granted: Decision | None = None
        self._lock = _LOCKS[id(self) // 64 % len(_LOCKS)]

    def take(self, now: float) -> float:
        """Take a token: 0.0 if there was one, else the seconds until the next."""
        with self._lock:
            tokens = self._tokens
            if now > self._at:  # as in _refill, which would cost a call of its own
                tokens += (now - self._at) * self.rate
                if tokens > self.burst:
                    tokens = self.burst
                self._at = now
            if tokens >= _WHOLE:
                self._tokens = tokens - 1 if tokens > 1 else 0.0
                return 0.0
            self._tokens = tokens
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
        with self._lock:
            self._refill(now)
            self.rate, self.burst, self.expires_at = rate, burst, expires_at
            self.reason, self._granted = reason, None
            self._tokens = min(self._tokens, burst)

    def unlock(self) -> None:
        """A fresh lock, for the child of a fork: another thread of the parent may have held the old one."""
        self._lock = threading.Lock()

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now
