"""One limit as an application keeps it: a token bucket whose lease ends in pass-through."""

from __future__ import annotations

import threading
from dataclasses import dataclass

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Decision:
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


class Bucket:
    """A token bucket of ``rate`` messages/s and ``burst`` messages, in force until ``expires_at``.

    All instants are seconds of one monotonic clock. Safe to use from several threads.
    """

    __slots__ = ("_at", "_lock", "_tokens", "burst", "expires_at", "rate", "reason")

    def __init__(self, rate: float, burst: float, expires_at: float, now: float, reason: str = "") -> None:
        self.rate = rate
        self.burst = burst
        self.expires_at = expires_at
        self.reason = reason
        self._tokens = burst
        self._at = now
        self._lock = threading.Lock()

    def take(self, now: float) -> float:
        """Take a token: 0.0 if there was one, else the seconds until the next."""
        with self._lock:
            self._refill(now)
            if self._tokens >= 1 - _ROUNDING:
                self._tokens = max(0.0, self._tokens - 1)
                return 0.0
            return (1 - self._tokens) / self.rate

    def renew(self, rate: float, burst: float, expires_at: float, now: float, reason: str) -> None:
        """New terms for a bucket in use: what it holds is kept, so that no renewal gives a fresh burst."""
        with self._lock:
            self._refill(now)
            self.rate, self.burst, self.expires_at, self.reason = rate, burst, expires_at, reason
            self._tokens = min(self._tokens, burst)

    def unlock(self) -> None:
        """A fresh lock, for the child of a fork: another thread of the parent may have held the old one."""
        self._lock = threading.Lock()

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now
