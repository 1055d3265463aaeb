"""Samples as they come: which consumer each is of, and what it reads.

Where events name no consumer of a queue, and samples one alone, both mean the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.remote import Location
from lake.snapshot import read_file
from lake.store import conform
from lake.tables import QUEUE_SAMPLES
from spark_analytics.fold.arrays import Array
from spark_analytics.fold.intake import Intake
from spark_analytics.fold.lived import Consumers, Distinct
from spark_analytics.fold.reading import NUMBERS, SAMPLE, WORDS, Words

_UNREAD = ("unavailable", "ingested_at", "ingest_date")
COLUMNS = tuple(name for name in QUEUE_SAMPLES.schema.names if name not in _UNREAD)
_SERIES = ("queue", "subscriber", "source")


class Samples:
    """Who is meant by the samples of a lake, and until when each broker's go."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin again without any."""
        self.newest_us: dict[str, int] = {}
        self.first_us: dict[tuple[str, str], int] = {}  # by (broker, queue)
        self._named: dict[tuple[str, str], set[str]] = {}
        self._taken_for: dict[tuple[str, str], bool] = {}

    def note(self, rows: pa.Table) -> None:
        """Remember which subscribers samples name."""
        read_at = pc.if_else(pc.is_null(rows.column("estimated")), rows.column("sampled_at"), None)
        told = rows.append_column("read_at", read_at)
        seen = told.group_by(["broker", "queue", "subscriber"], use_threads=False).aggregate(
            [("read_at", "max"), ("sampled_at", "min")]
        )
        newest, first = (seen.column(name).cast(pa.int64()).to_pylist() for name in ("read_at_max", "sampled_at_min"))
        names = (seen.column(name).to_pylist() for name in ("broker", "queue", "subscriber"))
        for broker, queue, subscriber, micros, begins in zip(*names, newest, first, strict=True):
            self.first_us[broker, queue] = min(begins, self.first_us.get((broker, queue), begins))
            if micros is not None:  # a report of what was estimated is no sample
                self.newest_us[broker] = max(micros, self.newest_us.get(broker, micros))
            if subscriber is not None:
                self._named.setdefault((broker, queue), set()).add(subscriber)

    def changed(self, rows: pa.Table, consumers: Mapping[str, Consumers]) -> bool:
        """Remember ``rows``; whether samples of before are of another consumer than they were taken to be."""
        self.note(rows)
        names = rows.group_by(["broker", "queue"], use_threads=False).aggregate([])
        return self._changed(
            zip(*(names.column(name).to_pylist() for name in ("broker", "queue")), strict=True), consumers
        )

    def _changed(self, places: Iterator[tuple[str, str]], consumers: Mapping[str, Consumers]) -> bool:
        changed = False
        for place in places:
            unnamed = self._unnamed(place, consumers)
            changed = changed or self._taken_for.get(place, unnamed) != unnamed
            self._taken_for[place] = unnamed
        return changed

    def doubtful(self, consumers: Mapping[str, Consumers]) -> bool:
        """Whether events that came made samples those of another consumer."""
        return self._changed(iter(list(self._taken_for)), consumers)

    def meant(self) -> dict[tuple[str, str], set[str]]:
        """By (broker, queue) the consumers that samples name and that stand for the unnamed one."""
        return {place: self._named[place] for place, unnamed in self._taken_for.items() if unnamed}

    def _unnamed(self, place: tuple[str, str], consumers: Mapping[str, Consumers]) -> bool:
        """Whether samples that name a consumer mean the unnamed one: they name no other, and events name none."""
        known = consumers.get(place[0])
        return len(self._named.get(place, ())) == 1 and known is not None and known.of(place[1]) == frozenset({""})

    def of_broker(self, broker: str, rows: pa.Table, fold: Intake) -> Array:
        """``rows``, all of ``broker``, as SAMPLEs, with the numbers that ``fold`` has for what they are of."""
        named = pa.table({name: pc.fill_null(rows.column(name), "") for name in _SERIES})
        names = Distinct(named, _SERIES)
        who, series = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        for place, (queue, subscriber, source) in enumerate(names.distinct):
            series[place] = fold.readings.series((queue, subscriber, source))
            unnamed = self._unnamed((broker, queue), {broker: fold.consumers})
            who[place] = fold.state.consumer(queue, "" if unnamed else subscriber)
        samples = _columns(rows, fold.readings.words)
        samples["consumer"], samples["series"] = who[names.of_row], series[names.of_row]
        return samples


def read_samples(path: Location) -> pa.Table:
    """The samples in the file ``path``; what applications publish is none, and only laws look at it."""
    part = read_file(path)
    if "publishes" in part.column_names:
        part = part.filter(pc.is_null(part.column("publishes")))
    for name in part.column_names:
        if name in _UNREAD or name not in QUEUE_SAMPLES.schema.names:
            part = part.drop_columns([name])
    return conform(part, pa.schema([QUEUE_SAMPLES.schema.field(name) for name in COLUMNS]))


def _columns(rows: pa.Table, words: Words) -> Array:
    samples = np.zeros(rows.num_rows, SAMPLE)
    for name in NUMBERS:
        samples[name] = rows.column(name).cast(pa.float64()).to_numpy()
    for name in WORDS:
        column = rows.column(name).combine_chunks().dictionary_encode()
        numbers = np.array([words.number(None), *map(words.number, column.dictionary.to_pylist())], np.int32)
        samples[name] = numbers[pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False) + 1]
    samples["sampled_us"] = rows.column("sampled_at").cast(pa.int64()).to_numpy()
    told = ~np.isnan(samples["depth"]) | ~np.isnan(samples["in_flight"])
    samples["reads"] = told | (np.isnan(samples["polls_total"]) & np.isnan(samples["estimated"]))
    # A depth beside which partitions are unknown is that of the others: nothing is reckoned with it.
    partly = pc.fill_null(rows.column("unknown_partitions"), 0).to_numpy() > 0
    samples["depth"] = np.where(partly, np.nan, samples["depth"])
    samples["there"] = samples["depth"] + np.nan_to_num(samples["in_flight"])
    return samples
