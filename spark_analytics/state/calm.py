"""Whether finished state may wait for two seconds: where little happens, and each second is like the ones before.

A step costs the same for ten rows and for a thousand, and so does the round of rules that reads what it told. What is
out of the ordinary is told at once; what goes on as ever is told every other second.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from lake.tables import EVENT_TYPES

#: Records a second up to which little happens: beyond, there is work to do, and it is done soon.
MOST_RECORDS = 500.0
#: Of a calm system a step begins so long (seconds) after the one before, with the first batch that comes then; at the
#: latest after so long, if any has come.
CALM_SECONDS, LONGEST_SECONDS = 1.7, 2.2
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
#: What a tenant sends is held against what it sent in the time since it was heard of, no more of that than so much
#: (seconds). So many are known, each kind of event for itself: those that were heard of last.
HEARD_SECONDS, MOST_KNOWN = 1.0, 10_000
#: One kind of event of one tenant: broker, queue, tenant, kind.
Key = tuple[str, str, str, str]


class Calm:
    """What batches brought lately. Any thread may tell of one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._surges = Surges()
        self._surge = False
        self._rate: float | None = None  # records a second, usually
        self._last: deque[tuple[float, int]] = deque(maxlen=TOGETHER + 1)  # when they came, and what they brought

    def comes(self, partials: pa.Table, now: float | None = None) -> None:
        """Note what the next batch to be noted brings of each tenant, as of ``now``."""
        now = time.monotonic() if now is None else now
        if (came := counted(partials)) is not None:
            with self._lock:
                self._surge |= self._surges.among(came, now)

    def brought(self, records: int, now: float | None = None) -> bool:
        """Note a batch of ``records``, at ``now`` of the monotonic clock; whether it is as usual, and small."""
        now = time.monotonic() if now is None else now
        with self._lock:
            surge, self._surge = self._surge, False
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
            return usual and not surge and max(rate, self._rate) <= MOST_RECORDS

    def _is_usual(self, rate: float) -> Iterator[bool]:
        """Of the last batch, and of it and those before it, whether they brought what ``rate`` lets expect."""
        (newest, _), brought = self._last[-1], 0
        for (_, records), (since, _) in pairwise(reversed(self._last)):
            brought += records
            least, most = (max(rate * (newest - since + late), 0.0) for late in (-LATE_SECONDS, LATE_SECONDS))
            yield least - DEVIATIONS * math.sqrt(least) <= brought <= at_most(most)


class Surges:
    """What each tenant usually sends: a flood of one is far beyond that, where all together are still within chance."""

    def __init__(self) -> None:
        self._rates: dict[Key, tuple[float, float]] = {}  # events a second, and when they were that many

    def among(self, came: Counter[Key], now: float) -> bool:
        """Note what ``came`` up to ``now``; whether of anything that is more than by chance."""
        found = [self._is_one(key, count, now) for key, count in came.items()]  # all are noted
        return any(found)

    def _is_one(self, key: Key, count: int, now: float) -> bool:
        rate, at = self._rates.pop(key, (0.0, now))
        rate *= math.exp((at - now) / MEAN_SECONDS)
        self._rates[key] = rate + count / MEAN_SECONDS, now
        if len(self._rates) > MOST_KNOWN:
            del self._rates[next(iter(self._rates))]
        return count > at_most(rate * (min(now - at, HEARD_SECONDS) + LATE_SECONDS))


def counted(partials: pa.Table) -> Counter[Key] | None:
    """How many events of each kind came of each tenant; None where that is no longer little."""
    if partials.num_rows > MOST_RECORDS:
        return None
    came: Counter[Key] = Counter()
    keys = list(zip(*(partials.column(name).to_pylist() for name in ("broker", "queue", "tenant")), strict=True))
    for kind in EVENT_TYPES:
        for (broker, queue, tenant), count in zip(keys, partials.column(kind).to_pylist(), strict=True):
            if count:
                came[broker, queue, tenant, kind] += count
    return came


def at_most(expected: float) -> float:
    """What comes at random where so much is ``expected``, but once in ten thousand times."""
    return expected + DEVIATIONS * math.sqrt(expected + 1)


def waits(since: float, *, calm: bool) -> float:
    """Seconds for which a step waits for a further batch, ``since`` seconds after the beginning of the one before."""
    return LONGEST_SECONDS - since if calm and since < CALM_SECONDS else 0.0
