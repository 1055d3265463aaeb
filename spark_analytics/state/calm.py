"""Whether finished state may wait for a second: where little happens, and each second is like the ones before.

A step costs the same for ten rows and for a thousand, and so does the round of rules that reads what it told. What is
out of the ordinary is told at once; what goes on as ever is told once a second, as it would be scraped.
"""

from __future__ import annotations

import math
import threading
import time

#: Records a second up to which little happens: beyond, there is work to do, and it is done soon.
MOST_RECORDS = 500.0
#: Of a calm system a step begins so long (seconds) after the one before, with the first batch that comes then; at the
#: latest after so long, if any has come.
CALM_SECONDS, LONGEST_SECONDS = 0.8, 1.2
#: The rate of records is the mean of about so many seconds.
MEAN_SECONDS = 30.0
#: What comes at random departs from its mean by more than so many times the root of it once in ten thousand times;
#: batches end a little before or after their time, so that some share of the mean is no departure either.
DEVIATIONS, SHARE = 4.0, 0.5


class Calm:
    """What batches brought lately. Any thread may tell of one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate: float | None = None  # records a second, usually
        self._last: float | None = None

    def brought(self, records: int, now: float | None = None) -> bool:
        """Note a batch of ``records``, at ``now`` of the monotonic clock; whether it is as usual, and small."""
        now = time.monotonic() if now is None else now
        with self._lock:
            last, self._last = self._last, now
            if last is None:
                return False
            apart = max(now - last, 0.001)
            if (rate := self._rate) is None:
                self._rate = records / apart
                return False
            expected = rate * apart
            share = -math.expm1(-apart / MEAN_SECONDS)
            self._rate = rate + share * (records / apart - rate)
            departs = abs(records - expected) > max(DEVIATIONS * math.sqrt(expected + 1), SHARE * expected)
            return not departs and max(rate, self._rate) <= MOST_RECORDS


def waits(since: float, *, calm: bool) -> float:
    """Seconds for which a step waits for a further batch, ``since`` seconds after the beginning of the one before."""
    return LONGEST_SECONDS - since if calm and since < CALM_SECONDS else 0.0
