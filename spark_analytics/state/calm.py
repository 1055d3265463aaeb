"""Whether finished state may wait for a second: where little happens, and each second is like the ones before.

A step costs the same for ten rows and for a thousand, and so does the round of rules that reads what it told. What is
out of the ordinary is told at once; what goes on as ever is told once a second, as it would be scraped.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

#: Records a second up to which little happens: beyond, there is work to do, and it is done soon.
MOST_RECORDS = 500.0
#: Of a calm system a step begins so long (seconds) after the one before, with the first batch that comes then; at the
#: latest after so long, if any has come.
CALM_SECONDS, LONGEST_SECONDS = 0.8, 1.2
#: The rate of records is the mean of about so many seconds.
MEAN_SECONDS = 30.0
#: What departs from it counts for so much: after a start, whose first batches bring what had piled up, it would be
#: too high for minutes.
QUICK_SHARE = 0.5
#: What comes at random departs from its mean by more than so many times the root of it once in ten thousand times; and
#: a batch may be so much (seconds) before or after its time.
DEVIATIONS, LATE_SECONDS = 4.0, 0.3
#: So many of the last batches are looked at together, too: their times tell more than that of one.
TOGETHER = 2


class Calm:
    """What batches brought lately. Any thread may tell of one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate: float | None = None  # records a second, usually
        self._last: deque[tuple[float, int]] = deque(maxlen=TOGETHER + 1)  # when they came, and what they brought

    def brought(self, records: int, now: float | None = None) -> bool:
        """Note a batch of ``records``, at ``now`` of the monotonic clock; whether it is as usual, and small."""
        now = time.monotonic() if now is None else now
        with self._lock:
            before = self._last[-1][0] if self._last else now
            self._last.append((now, records))
            if (apart := now - before) <= 0:
                return False
            if (rate := self._rate) is None:
                self._rate = records / apart
                return False
            usual = all(self._is_usual(rate))
            share = max(-math.expm1(-apart / MEAN_SECONDS), 0.0 if usual else QUICK_SHARE)
            self._rate = rate + share * (records / apart - rate)
            return usual and max(rate, self._rate) <= MOST_RECORDS

    def _is_usual(self, rate: float) -> Iterator[bool]:
        """Of the last batch, and of it and those before it, whether they brought what ``rate`` lets expect."""
        (newest, _), brought = self._last[-1], 0
        for (_, records), (since, _) in pairwise(reversed(self._last)):
            brought += records
            least, most = (max(rate * (newest - since + late), 0.0) for late in (-LATE_SECONDS, LATE_SECONDS))
            yield least - DEVIATIONS * math.sqrt(least) <= brought <= most + DEVIATIONS * math.sqrt(most + 1)


def waits(since: float, *, calm: bool) -> float:
    """Seconds for which a step waits for a further batch, ``since`` seconds after the beginning of the one before."""
    return LONGEST_SECONDS - since if calm and since < CALM_SECONDS else 0.0
