"""A lake's past, described so that its queues can be folded side by side, each share by a process of its own.

Nothing of one queue changes another, but for two things that every share is told: at which seconds anything happened
in a broker, because what expires is told where a second ends, and what samples tell of dead-letter queues.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.definitions import Definitions
from lake.remote import Location, Remote, store_of
from spark_analytics.fold import lived
from spark_analytics.fold.arrays import Integers, distinct
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.lived import Consumers, Distinct, by_broker
from spark_analytics.fold.past import Clocks, Part, fold_past
from spark_analytics.fold.samples import Samples, read_samples
from spark_analytics.fold.survey import FED, surveyed
from spark_analytics.fold.units import row_group, units

#: (broker, queue)
Place = tuple[str, str]
#: The queues of one share, by broker.
Share = Mapping[str, frozenset[str]]
#: A place that goes to another process: a path of a shared disk, or address, options and key of an object store.
Sent = str | tuple[str, Mapping[str, str], str]
_COLUMNS = (*lived.LEVELS, "queue", "subscriber", "enqueued")


@dataclass(frozen=True, slots=True)
class Broker:
    """What was surveyed of a broker: data time, levels, who consumes its queues, and the seconds that changed any."""

    as_of_us: int
    minutes_until: int
    hours_until: int
    consumers: Consumers
    seconds: Integers
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class Past:
    """What every share is told: the files of a lake's tables at one version, and its brokers."""

    files: Mapping[str, list[Sent]]
    definitions: Definitions
    brokers: Mapping[str, Broker]

    def fold(self, share: Share, passed: Callable[[str, Fold, int], None]) -> dict[str, Fold]:
        """Fold the queues of ``share`` up to data time; the folds, by broker. ``passed`` is called with each second of
        all that changed anything in a broker. Raises LakeError."""
        files = {name: [received(one) for one in each] for name, each in self.files.items()}
        samples = Samples()
        sampled = [read_samples(path) for path in files["queue_samples"]]
        for rows in sampled:
            samples.note(rows)
        folds = {broker: self._begun(broker, queues) for broker, queues in share.items()}
        for rows in sampled:
            for broker, its in by_broker(_with_dead_letters(share, rows)):
                folds[broker].add_samples(samples.of_broker(broker, its, folds[broker]))
        expected = dict.fromkeys(folds, 0)

        def advance(broker: str, fold: Fold, until: int) -> None:
            seconds, first = self.brokers[broker].seconds, expected[broker]
            expected[broker] = int(np.searchsorted(seconds, until, side="right"))
            for second in seconds[first : expected[broker]].tolist():
                fold.expect(second)
            fold.advance(until, lambda second: passed(broker, fold, second))

        parts = {broker: Part(broker, fold) for broker, fold in folds.items()}
        for _ in fold_past(files, parts, advance, chosen=lambda rows: _of(share, rows)):
            pass
        return folds

    def _begun(self, broker: str, queues: frozenset[str]) -> Fold:
        known = self.brokers[broker]
        fold = Fold(self.definitions.window_seconds, self.definitions.target_seconds, known.consumers)
        fold.minutes_until, fold.hours_until = known.minutes_until, known.hours_until
        fold.as_of_us = known.as_of_us
        fold.only = queues
        return fold


def survey(files: Mapping[str, list[Location]], definitions: Definitions) -> tuple[Past, dict[Place, int]]:
    """The past that the ``files`` of FED tell of, and of each queue how many rows tell of it. Raises LakeError."""
    samples = Samples()
    sampled = [read_samples(path) for path in files["queue_samples"]]
    for rows in sampled:
        samples.note(rows)
    folds = surveyed(files["partials"], sampled, definitions)
    seconds: dict[str, list[Integers]] = {broker: [] for broker in folds}
    weights: dict[Place, int] = {}
    told: set[str] = set()
    for path, group, _ in units(files["partials"]):
        for rows in row_group(path, group, _COLUMNS):
            for broker, mine in by_broker(rows):
                told.add(broker)
                seconds[broker].append(_seconds(mine, folds[broker].consumers))
                _count(weights, broker, mine)
    for rows in sampled:
        for broker, mine in by_broker(rows):
            seconds[broker].append(_seconds_of_samples(mine, folds[broker]))
            _count(weights, broker, mine)
    brokers = {
        broker: Broker(
            fold.as_of_us,
            fold.minutes_until,
            fold.hours_until,
            fold.consumers,
            distinct(*seconds[broker]),
            Clocks(fold.as_of_us if broker in told else None, samples.newest_us.get(broker)),
        )
        for broker, fold in folds.items()
    }
    return Past({name: [sent(path) for path in files[name]] for name in FED}, definitions, brokers), weights


def shares_of(weights: Mapping[Place, int], most: int) -> list[Share]:
    """All queues in at most ``most`` shares of about the same weight: the heaviest first, to whoever has least."""
    heap: list[tuple[int, int, list[Place]]] = [(0, number, []) for number in range(min(most, len(weights)))]
    for place in sorted(weights, key=lambda each: (-weights[each], each)):
        weight, number, places = heapq.heappop(heap)
        places.append(place)
        heapq.heappush(heap, (weight + weights[place], number, places))
    shares: list[Share] = []
    for _, _, places in sorted(heap, key=lambda each: each[1]):
        brokers = sorted({broker for broker, _ in places})
        shares.append({name: frozenset(queue for broker, queue in places if broker == name) for name in brokers})
    return shares


def _seconds(rows: pa.Table, consumers: Consumers) -> Integers:
    """The seconds of those ``rows`` of partials of a broker that any consumer lives."""
    places = Distinct(rows, ("queue", "subscriber"))
    lives, arrives = (np.zeros(len(places), bool) for _ in range(2))
    for number, (queue, subscriber) in enumerate(places.distinct):
        consuming = consumers.of(queue)
        lives[number], arrives[number] = subscriber in consuming, not subscriber and bool(consuming - {""})
    lived_by = lives[places.of_row] | (arrives[places.of_row] & (rows.column("enqueued").to_numpy() > 0))
    width = rows.column("bucket_seconds").to_numpy().astype(np.int64)
    starts = rows.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000
    return distinct((starts + width - 1)[lived_by])


def _seconds_of_samples(rows: pa.Table, fold: Fold) -> Integers:
    """The seconds of which samples of a broker tell, up to its data time."""
    taken = distinct(rows.column("sampled_at").cast(pa.int64()).to_numpy() // 1_000_000)
    told = [fold.level_second(second) for second in taken[taken <= fold.now_second].tolist()]
    return distinct(np.array(told, np.int64))


def _count(weights: dict[Place, int], broker: str, rows: pa.Table) -> None:
    counted = pc.value_counts(rows.column("queue").cast(pa.string())).to_pylist()
    for one in counted:
        weights[broker, one["values"]] = weights.get((broker, one["values"]), 0) + one["counts"]


def _of(share: Share, rows: pa.Table) -> pa.Table:
    """Those of ``rows`` that are about queues of ``share``."""
    return rows.filter(_any(_about(broker, queues, rows) for broker, queues in share.items()))


def _with_dead_letters(share: Share, samples: pa.Table) -> pa.Table:
    """Those of ``samples`` that are about queues of ``share``, or about dead-letter queues of their brokers."""
    serves = pc.is_valid(samples.column("dead_letter_for"))
    of_brokers = pc.is_in(samples.column("broker").cast(pa.string()), pa.array(list(share), pa.string()))
    about = _any(_about(broker, queues, samples) for broker, queues in share.items())
    return samples.filter(pc.or_(about, pc.and_(serves, of_brokers)))


def _about(broker: str, queues: Iterable[str], rows: pa.Table) -> Any:
    its = pc.is_in(rows.column("queue").cast(pa.string()), pa.array(sorted(queues), pa.string()))
    return pc.and_(pc.equal(rows.column("broker").cast(pa.string()), broker), its)


def _any(masks: Iterable[Any]) -> Any:
    either, *others = masks
    for mask in others:
        either = pc.or_(either, mask)
    return either


def sent(place: Location) -> Sent:
    """``place`` as another process can be told it."""
    return (place.store.url, place.store.options, place.key) if isinstance(place, Remote) else str(place)


def received(told: Sent) -> Location:
    """The place that another process told."""
    return Path(told) if isinstance(told, str) else Remote(store_of(told[0], told[1]), told[2])
