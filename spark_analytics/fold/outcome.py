"""The state of a broker at a second: what finished rows hold of it, as columns of NumPy."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lake.formula import compiled
from lake.noisy import NOISY, SILENT
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.arrays import Array, null_where
from spark_analytics.fold.cells import NONE, Buckets
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.reading import CHANGES
from spark_analytics.fold.state import BACKLOG, IN_FLIGHT, READY
from spark_analytics.fold.step import WINDOWED, Step, work_units

#: By the names that they have in finished state; unknown numbers are NaN, texts are numbers of
#: :class:`spark_analytics.fold.reading.Words`, modes those of MODES, times are in µs.
Columns = dict[str, Array]

_COVERAGE = compiled(FORMULAS["coverage"])

#: Columns about queues that the newest sample tells, under its own names, and under others.
_TOLD = (
    "depth", "there", "consumers", "delayed", "retention_margin", "prefetch", "visibility_timeout_seconds",
    "transactional_lag", "transactional_age_seconds", "sample_interval_seconds",
)  # fmt: skip
_TOLD_AS = {
    "broker_in_flight": "in_flight",
    "sample_staleness_seconds": "staleness_seconds",
    "told_age_seconds": "oldest_age_seconds",
}
_RATES = ("enqueued", "finished", "received")


class Outcome:
    """What ``fold`` has come to at the end of ``second``, the last one that it took in (default: that of data time)."""

    def __init__(self, broker: str, fold: Fold, second: int | None = None) -> None:
        self.broker, self.fold = broker, fold
        self.second = fold.now_second if second is None else second
        self.as_of_us = min((self.second + 1) * 1_000_000, fold.as_of_us)
        self._window_seconds = compiled(FORMULAS["window_seconds"].replace("$window", str(fold.window)))
        state = fold.state
        count = len(state.names)
        last = fold.done[-1] if fold.done else None
        self._step = last if last is not None and last.second == self.second else Step(self.second)
        keys, counts, work, wide, _ = self._step.merged()
        self._wide, self._wide_counts, self._wide_work = keys[wide], counts[wide], work[wide]  # of rolled-up buckets
        self._own = fold.own()
        self._consumers = state.consumer_of[:count]
        #: The fold's number of each key and of its consumer, for the rows about tenants.
        self.keys = np.flatnonzero(state.told[:count] & self._own[self._consumers])
        self.consumers = self._consumers[self.keys]
        self._tenants = state.tenants(slice(0, count))
        own, whole = state.window_work[:count], state.queue_work
        if len(self._wide):
            own, units = own.copy(), work_units(self._wide_work)
            own[self._wide] = units
            whole = state.work_of(state.consumer_of[self._wide], units)
        verdicts, _ = state.judged(
            self._tenants, self._consumers, self.second, state.last_arrival[:count], own, whole[self._consumers]
        )
        self._noisy = np.where(verdicts != SILENT, verdicts, state.verdicts[:count]) == NOISY

    @cached_property
    def places(self) -> Array:
        """The fold's number of the consumer that each row about queues is about."""
        told = self.fold.readings.sampled[: len(self.fold.state.consumers)].copy()
        told[self.consumers] = True
        return np.flatnonzero(told & self._own)

    @cached_property
    def happened(self) -> tuple[Array, Array]:
        """Of each of :attr:`keys`, and of each of :attr:`places`, whether history shows it at this second: an event,
        or a sample, of it tells of the second. Of the time that an opening balance is of there is no history."""
        told, instants = np.zeros(len(self._consumers), bool), np.zeros(len(self.fold.state.consumers), bool)
        if self._step.instants is not None and self.second > self.fold.opened_until:
            keys, _, _, _, tells = self._step.merged()
            told[keys[tells]] = True
            instants[self._step.instants] = True
        return told[self.keys], instants[self.places]

    @cached_property
    def tenant_columns(self) -> Columns:
        """Of each of :attr:`keys` what the views about tenants rest on, beside :attr:`columns_of_queues`."""
        state, keys = self.fold.state, self.keys
        oldest = state.oldest[keys]
        return {
            "backlog": self._tenants[keys, BACKLOG],
            "in_flight": self._tenants[keys, IN_FLIGHT],
            "ready": self._tenants[keys, READY],
            "noisy": self._noisy[keys],
            "oldest_second": null_where(oldest == NONE, oldest),
            **{f"window_{name}": self._window(name)[keys].astype(np.float64) for name in _RATES},
            "window_processing_count": self._window("processing_count")[keys],
            "window_processing_sum": self._processing_seconds()[keys],
            "processing_bucket": self._p99()[keys],
            "concurrency_limit": self.fold.readings.limits[self.consumers],
        }

    @property
    def columns_of_queues(self) -> Columns:
        """Of each of :attr:`keys` what the views about tenants take from its queue; ``consumer`` is whose it is."""
        return {
            "consumer": self.consumers,
            "window_seconds": self._lengths[self.consumers],
            "queue_backlog": self.fold.state.queues[self.consumers, BACKLOG],
            "coverage": self._coverage(),
        }

    @cached_property
    def queue_columns(self) -> Columns:
        """Of each of :attr:`places` what the views about queues rest on."""
        fold, state, readings, places = self.fold, self.fold.state, self.fold.readings, self.places
        oldest = state.oldest_of_queues()
        quiet = state.oldest_of_queues(~self._noisy)[places]
        columns = fold.queue_columns(places, self.second, self.as_of_us, oldest)
        newest = readings.newest[places]
        read = newest["sampled_us"] > 0
        dead = readings.dead_letters()
        modes = fold.modes_of(columns)
        return {
            "has_events": columns["has_events"],
            "window_seconds": self._lengths[places],
            "backlog": state.queues[places, BACKLOG],
            "events_in_flight": state.queues[places, IN_FLIGHT],
            "ready": state.queues[places, READY],
            "tenants": np.bincount(self.consumers, minlength=len(self._own))[places],
            "noisy_tenants": self._summed(self._noisy)[places].astype(np.int64),
            **{f"window_{name}": self._summed(self._window(name))[places] for name in (*_RATES, "retries")},
            "dead_lettered": self._summed(self._window("dead_lettered"))[places].astype(np.int64),
            "dlq_depth": np.array([dead.get(state.consumers[place][0], np.nan) for place in places.tolist()])
            if dead
            else np.full(len(places), np.nan),
            **{name: self._changes(name) for name in CHANGES},
            "backlog_when_sampled": np.where(read, readings.backlog[places], np.nan),
            "sampled_us": null_where(~read, newest["sampled_us"]),
            **{name: np.where(read, newest[_TOLD_AS.get(name, name)], np.nan) for name in (*_TOLD, *_TOLD_AS)},
            "status": newest["status"],
            "dead_letter_for": newest["dead_letter_for"],
            "oldest_second": null_where(oldest[places] == NONE, oldest[places]),
            "quiet_oldest_second": null_where(quiet == NONE, quiet),
            "mode": modes,
            "mode_since": np.where(state.modes[places] == modes, state.since_us[places], self.as_of_us),
            "in_flight_limit": readings.limits[places],
        }

    @cached_property
    def _lengths(self) -> Array:
        """The length of the window, as far as there are seconds, of each consumer."""
        first = self.fold.state.first_seconds()
        length: Array = self._window_seconds(
            {
                "bucket_seconds": np.full(len(first), self.fold.width(self.second)),
                "at_second": np.full(len(first), self.second),
                "first_second": null_where(first == NONE, first),
                "level_starts_after": np.full(len(first), self.fold.minutes_until),
            }
        )
        return length.astype(np.int64)

    def _window(self, name: str) -> Array:
        place = WINDOWED.index(name)
        values = self.fold.state.window[: len(self._consumers), place]
        if len(self._wide):
            values = values.copy()
            values[self._wide] = self._wide_counts[:, place]
        return values

    def _p99(self) -> Array:
        count = len(self._consumers)
        buckets = self.fold.state.buckets.p99(count)
        if len(self._wide):
            own = Buckets()
            own.add(*self._step.wide_buckets())
            buckets[self._wide] = own.p99(count)[self._wide]
        return buckets

    def _changes(self, name: str) -> Array:
        """Of each of :attr:`places` the sum of one of CHANGES over the window."""
        values = self.fold.readings.over_window(name, self.places)
        for lately in self._step.wide_sampled:
            known, sums = np.zeros(len(self._own)), np.zeros(len(self._own))
            known[lately.consumers] = lately.known[:, CHANGES.index(name)]
            sums[lately.consumers] = lately.sums[:, CHANGES.index(name)]
            told = known[self.places] > 0
            values = np.where(told, np.where(np.isnan(values), 0, values) + sums[self.places], values)
        return values

    def _coverage(self) -> Array:
        """Of each of :attr:`keys` how far the events of its queue can be trusted."""
        queues = self.queue_columns
        with np.errstate(all="ignore"):
            told = np.asarray(_COVERAGE({name: queues[name] for name in ("there", "backlog_when_sampled")}), np.float64)
        of_key: Array = told[np.searchsorted(self.places, self.consumers)]
        return of_key

    def _summed(self, values: Array) -> Array:
        """``values`` of all keys added up by consumer."""
        count = len(self.fold.state.consumers)
        # Of no keys at all bincount makes integers, whatever it should have added.
        return np.bincount(self._consumers, weights=values, minlength=count)[:count].astype(float)

    def _processing_seconds(self) -> Array:
        """Processing time over the window in seconds, added up anew: exact to what floats are."""
        count = len(self._consumers)
        told = [step.narrow_work() for step in self.fold.in_window(self.second)]
        if not told:
            return np.zeros(count)
        keys, work = (np.concatenate(column) for column in zip(*told, strict=True))
        sums = np.bincount(keys, weights=work, minlength=count).astype(float)
        sums[self._wide] = self._wide_work
        return sums
