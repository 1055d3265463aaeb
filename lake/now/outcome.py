"""The state of a broker at its data time, as the rows that the `…_now` views' last stages ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.now.cells import NONE, run_starts
from lake.now.expression import compiled
from lake.now.fold import Fold
from lake.now.levels import NOISY, then
from lake.now.modes import MODE_NAMES
from lake.now.reading import CHANGES, WORDS
from lake.now.state import BACKLOG, IN_FLIGHT, READY, null_where
from lake.now.step import WINDOWED
from lake.views.catalogue import FORMULAS

Array = npt.NDArray[Any]

_BUCKET_SHIFT = 13
_BUCKET_OFFSET = 1 << (_BUCKET_SHIFT - 1)
_QUIET_OLDEST_AGE = compiled(FORMULAS["quiet_oldest_age"])

#: Columns of `stage_queues_now`, and which number of the newest sample each of them is.
_TOLD_COUNTS = {
    "depth": "depth",
    "broker_in_flight": "in_flight",
    "there": "there",
    "consumers": "consumers",
    "broker_delayed": "delayed",
    "retention_margin": "retention_margin",
    "prefetch": "prefetch",
    "transactional_lag": "transactional_lag",
}
_TOLD_SECONDS = {
    "visibility_timeout_seconds": "visibility_timeout_seconds",
    "transactional_age_seconds": "transactional_age_seconds",
    "sample_staleness_seconds": "staleness_seconds",
    "told_age_seconds": "oldest_age_seconds",
}


class Outcome:
    """What a fold has come to: worked out once for each state of it, each part when it is first asked for."""

    def __init__(self, broker: str, fold: Fold) -> None:
        self._broker = broker
        self._window_seconds = compiled(FORMULAS["window_seconds"].replace("$window", str(fold.window)))
        self._fold = fold
        state, second = fold.state, fold.now_second
        count = len(state.names)
        self._keys = np.flatnonzero(state.told[:count])
        self._consumers = state.consumer_of[:count]
        tenants = state.tenants(slice(0, count))
        verdicts, _ = state.judged(
            tenants,
            self._consumers,
            second,
            state.last_arrival[:count],
            state.window_work[:count],
            state.queue_work[self._consumers],
        )
        self._past = fold.past()
        self._noisy = then(self._past.verdicts, verdicts)[:count] == NOISY
        self._tenants = tenants

    @property
    def has_keys(self) -> bool:
        """Whether events told of any tenant."""
        return len(self._keys) > 0

    @property
    def keys(self) -> Array:
        """The fold's number of each row of :meth:`tenants` and :meth:`concurrency`."""
        return self._keys

    def _names(self, keys: Array) -> dict[str, pa.Array]:
        """Broker, queue and subscriber as dictionaries, the tenant as text."""
        state = self._fold.state
        consumers = pa.array(self._consumers[keys])
        queues, subscribers = ([name[place] for name in state.consumers] for place in (0, 1))
        return {
            "broker": _repeated(self._broker, len(keys)),
            "queue": pa.DictionaryArray.from_arrays(consumers, pa.array(queues, pa.string())),
            "subscriber": pa.DictionaryArray.from_arrays(consumers, pa.array(subscribers, pa.string())),
            "tenant": state.tenant_names().take(pa.array(keys)),
        }

    def _clock(self, keys: Array) -> dict[str, Any]:
        """Data time, and the length of the window as far as there are seconds."""
        clock = self._clock_of(self._consumers[keys])
        length = self._window_seconds({**clock, "first_second": clock["first_second"].to_numpy(zero_copy_only=False)})
        return {"as_of_us": clock["as_of_us"], "window_seconds": length.astype(np.int64)}

    def tenants(self) -> pa.Table:
        """The rows of `stage_tenants_now`."""
        state, keys = self._fold.state, self._keys
        oldest = state.oldest[keys]
        return pa.table(
            {
                **self._names(keys),
                **self._clock(keys),
                "at_second": np.full(len(keys), self._fold.now_second, np.int64),
                "backlog": self._tenants[keys, BACKLOG],
                "in_flight": self._tenants[keys, IN_FLIGHT],
                "ready": self._tenants[keys, READY],
                "window_enqueued": self._windowed(keys, "enqueued"),
                "window_finished": self._windowed(keys, "finished"),
                "queue_backlog": state.queues[self._consumers[keys], BACKLOG],
                "noisy": self._noisy[keys],
                "oldest_second": pa.array(oldest, mask=oldest == NONE),
            }
        )

    def concurrency(self) -> pa.Table:
        """The rows of `stage_concurrency_now`."""
        keys = self._keys
        buckets, known = self._p99_buckets()
        return pa.table(
            {
                **self._names(keys),
                **self._clock(keys),
                "in_flight": self._tenants[keys, IN_FLIGHT],
                "window_received": self._windowed(keys, "received"),
                "window_processing_count": self._windowed(keys, "processing_count").astype(np.int64),
                "window_processing_sum": self._processing_seconds()[keys],
                "bucket": pa.array(buckets[keys], mask=~known[keys]),
                "concurrency_limit": _nullable_int(self._fold.readings.limits[self._consumers[keys]]),
            }
        )

    def queues(self) -> pa.Table:
        """The rows of `stage_queues_now`, and what they rest on."""
        fold, state, readings = self._fold, self._fold.state, self._fold.readings
        count = len(state.consumers)
        told = np.zeros(count, bool)
        told[self._consumers[self._keys]] = True
        oldest = state.oldest_of_queues()
        quiet = state.oldest_of_queues(~self._noisy)
        every = np.arange(count)
        columns = fold.queue_columns(every, fold.now_second, fold.as_of_us, oldest)
        newest = readings.newest[:count]
        read = newest["sampled_us"] > 0
        backlog_told = readings.backlog_told(fold.minutes_until, fold.hours_until)[:count]
        dead = readings.dead_letters()
        clock = self._clock_of(every)
        first_second = clock["first_second"].to_numpy(zero_copy_only=False)
        modes = fold.modes.of(columns)
        runs = self._past.runs
        runs.grow(count)
        goes_on = runs.last[:count] == modes
        since = np.where(
            goes_on, np.where(runs.since[:count] > 0, runs.since[:count], runs.began[:count]), fold.as_of_us
        )
        work = {
            # Of no keys at all bincount makes integers, whatever it should have added.
            f"window_{name}": np.bincount(self._consumers, weights=self._window(name), minlength=count)[:count].astype(
                float
            )
            for name in ("enqueued", "finished", "received", "retries", "dead_lettered")
        }
        noisy = np.bincount(self._consumers, weights=self._noisy, minlength=count)[:count].astype(np.int64)
        quiet_second = null_where(quiet[:count] == NONE, quiet[:count])
        rows = pa.table(
            {
                "broker": _repeated(self._broker, count),
                "queue": pa.array([queue for queue, _ in state.consumers], pa.string()),
                "subscriber": pa.array([subscriber for _, subscriber in state.consumers], pa.string()),
                "as_of_us": clock["as_of_us"],
                "at_second": clock["at_second"],
                "has_events": columns["has_events"],
                "window_seconds": self._window_seconds({**clock, "first_second": first_second}).astype(np.int64),
                "backlog": state.queues[:count, BACKLOG],
                "in_flight": state.queues[:count, IN_FLIGHT],
                "noisy_tenants": noisy,
                **work,
                "window_dead_lettered": work["window_dead_lettered"].astype(np.int64),
                "dlq_depth": pa.array([dead.get(queue) for queue, _ in state.consumers], pa.int64()),
                **{name: _nullable_int(readings.over_window(name, count)) for name in CHANGES},
                "backlog_when_sampled": _nullable_int(np.where(read, backlog_told, np.nan)),
                "sampled_us": pa.array(newest["sampled_us"], mask=~read),
                **{name: _nullable_int(np.where(read, newest[told], np.nan)) for name, told in _TOLD_COUNTS.items()},
                "dead_letters": pa.array(newest["dead_letter_for"] > 0, mask=~read),
                **{name: readings.words.column(newest[name]) for name in WORDS},
                **{name: _nullable(np.where(read, newest[told], np.nan)) for name, told in _TOLD_SECONDS.items()},
                "oldest_age_seconds": _nullable(columns["oldest_age_seconds"]),
                "quiet_oldest_age_seconds": _nullable(
                    np.asarray(_QUIET_OLDEST_AGE({"as_of_us": fold.as_of_us, "quiet_oldest_second": quiet_second}))
                ),
                "oldest_second": pa.array(oldest[:count], mask=oldest[:count] == NONE),
                "quiet_oldest_second": pa.array(quiet[:count], mask=quiet[:count] == NONE),
                "mode": pa.array([MODE_NAMES[number] or None for number in modes.tolist()], pa.string()),
                "mode_since_us": since,
                "in_flight_limit": _nullable_int(readings.limits[:count]),
            }
        )
        return rows.filter(pa.array(told | readings.sampled[:count]))

    def _clock_of(self, consumers: Array) -> dict[str, Any]:
        fold, count = self._fold, len(consumers)
        firsts: dict[str, int] = {}
        for (queue, _), first in zip(fold.state.consumers, fold.state.first_second.tolist(), strict=False):
            firsts[queue] = min(first, firsts.get(queue, first))
        first_second = np.array([firsts[queue] for queue, _ in fold.state.consumers], np.int64)[consumers]
        return {
            "as_of_us": _same(fold.as_of_us, count),
            "at_second": _same(fold.now_second, count),
            "bucket_seconds": _same(1, count),
            "first_second": pa.array(first_second, mask=first_second == NONE),
            "level_starts_after": _same(fold.minutes_until, count),
        }

    def _window(self, name: str) -> Array:
        return self._fold.state.window[: len(self._consumers), WINDOWED.index(name)]

    def _windowed(self, keys: Array, name: str) -> Array:
        return self._window(name)[keys].astype(np.float64)

    def _processing_seconds(self) -> Array:
        """Processing time over the window in seconds, added up anew: exact to what floats are."""
        count = len(self._consumers)
        rows = [step.merged() for step in self._fold.in_window()]
        if not rows:
            return np.zeros(count)
        keys = np.concatenate([keys[~wide] for keys, _, _, wide, _ in rows])
        work = np.concatenate([work[~wide] for _, _, work, wide, _ in rows])
        return np.bincount(keys, weights=work, minlength=count)

    def _p99_buckets(self) -> tuple[Array, Array]:
        """The histogram bucket of each key's 99th percentile over the window, and whether it has one."""
        count = len(self._consumers)
        chunks = [chunk for step in self._fold.in_window() for chunk in step.processing]
        buckets, known = np.zeros(count, np.int64), np.zeros(count, bool)
        if not chunks:
            return buckets, known
        keys, index, counts = (np.concatenate(column) for column in zip(*chunks, strict=True))
        codes = (keys.astype(np.int64) << _BUCKET_SHIFT) + index + _BUCKET_OFFSET
        order = np.argsort(codes)
        codes, so_far = codes[order], np.cumsum(counts[order], dtype=np.int64)
        keys = codes >> _BUCKET_SHIFT
        starts = run_starts(keys)
        ends = np.concatenate((starts[1:], [len(keys)])) - 1
        before = np.concatenate(([0], so_far[ends[:-1]]))
        totals = so_far[ends] - before
        # The first at which 100 × the count so far reaches 99 × the total: the sums only grow, from key to key, too.
        ranks = before + -(-totals * 99 // 100)
        reached = np.searchsorted(so_far, ranks)
        buckets[keys[starts]] = (codes[reached] & ((1 << _BUCKET_SHIFT) - 1)) - _BUCKET_OFFSET
        known[keys[starts]] = True
        return buckets, known


def _same(value: int, count: int) -> Array:
    return np.full(count, value, np.int64)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([text], pa.string()))


def _nullable(values: Array) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _nullable_int(values: Array) -> pa.Array:
    unknown = np.isnan(values)
    return pa.array(np.where(unknown, 0, values).astype(np.int64), mask=unknown)
