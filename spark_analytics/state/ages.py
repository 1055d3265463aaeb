"""Ages, bucket by bucket: what `partials` and `marks` come to, told again whenever a bucket is not as it was told last.

A bucket's row is its whole sum. The newest seconds are summed in memory (:mod:`spark_analytics.state.recent`), and of
named subscribers' newest messages it is remembered who was first (:mod:`spark_analytics.state.receipts`); what comes
for an older bucket has it read again from the tables (:mod:`spark_analytics.state.truth`). So nothing is too late, and
no order of coming makes another row. Where partials were rolled up, a bucket is the minute, or hour, that they tell of.

Whoever takes over goes on from the newest epoch in gold and the versions that it says it rests on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.finished import AGE_STATE
from lake.remote import delta_table
from lake.schema import TIMESTAMP
from lake.snapshot import FileGone, read_file
from lake.state.held import Held
from lake.store import Lake, LakeError
from spark_analytics.fold.arrays import Array, distinct, located
from spark_analytics.fold.lived import LEVELS, levels_of
from spark_analytics.fold.units import in_order
from spark_analytics.maintenance.receipts import APPLICATION
from spark_analytics.maintenance.region import Region
from spark_analytics.maintenance.retention import DAY, HOUR, MINUTE
from spark_analytics.state import truth
from spark_analytics.state.age_rows import rows_of
from spark_analytics.state.ages_of import (
    FOLDED,
    KINDS,
    MARK_COLUMNS,
    PARTIAL_COLUMNS,
    Keys,
    of_partials,
    of_state,
)
from spark_analytics.state.buckets import Buckets, added_up, code_of, empty, found, slots_of, starts_of, together
from spark_analytics.state.feed import Came, Feed, versions_folded
from spark_analytics.state.newest import Newest
from spark_analytics.state.receipts import REMEMBERED_SECONDS, Receipts, first_attempts
from spark_analytics.state.recent import MOST_SECONDS, Recent

log = logging.getLogger(__name__)

#: So many buckets of single seconds are held at most, of all brokers together.
MOST_RECENT = 1_000_000
#: How many rows of history wait at most before they are committed.
MOST_WAITING = 300_000
#: A bucket that begins so many seconds ahead of the clock is an event from the future.
AHEAD_SECONDS = 3600
#: A second after all that there are.
FAR = 1 << 36
_MICROS = 1_000_000


class Ages:
    """The ages of ``lake``, of which ``feed`` reads what comes; belongs to one thread.

    They go on from the newest epoch in gold, if its rows rest on versions that ``feed`` goes on from; else every bucket
    is told again.
    """

    def __init__(self, lake: Lake, feed: Feed) -> None:
        self._lake, self._feed = lake, feed
        self._clear()
        if not feed.versions or not versions_folded(lake, AGE_STATE.name):
            return
        held = Held(AGE_STATE.name, lake.root)
        held.refresh()
        try:
            self._take_over(held)
        except LakeError as error:
            log.info("every age is told again: %s", error)  # files of that version are gone
            self._clear()

    def _clear(self) -> None:
        self._keys, self._newest = Keys(), Newest()
        self._receipts = Receipts(self._keys)
        self._recent: dict[int, Recent] = {}
        self._levels: dict[int, tuple[int, int]] = {}  # by broker: until when partials are by the minute, by the hour
        self._floor = -1  # of brokers that were not known
        self._ahead = np.zeros(0, np.int64)  # seconds that are held by no memory, though they are to come
        self._touched: list[Array] = []
        self._told: list[Buckets] = []
        self._every = True
        self._whole = False

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def waiting(self) -> bool:
        """Whether :meth:`take` has something to tell of what came."""
        return any(map(len, self._touched)) or any(len(each.code) for each in self._told)

    def turned(self) -> None:
        """An epoch begins: the next rows are to have the newest bucket of every slot."""
        self._every = True

    # -- what comes ---------------------------------------------------------------------------------------------------

    def refresh(self, came: Came, flush: Callable[[], None]) -> None:
        """Take in what ``came``. ``flush`` has to take and commit, where much is told. Raises LakeError."""
        if not self._whole or came.rebuild:
            self._from_start(flush)
            return
        try:
            self._take_in(came, flush)
        except FileGone:  # while so much was read file by file
            self._from_start(flush)

    def _take_in(self, came: Came, flush: Callable[[], None]) -> None:
        for rows in came.rolled_up():
            self._rolled_up(rows)
        held: list[Buckets] = []
        for rows in came.of("partials"):
            if (pc.max(rows.column("bucket_seconds")).as_py() or 0) > 1:
                self._note_levels(levels_of(rows))
            held.append(of_partials(rows, self._keys))
            if sum(len(each.code) for each in held) > MOST_WAITING:
                self._add(together(held))
                held.clear()
                flush()
        if held:
            self._add(together(held))
        attempts = [_attempts(rows) for rows in came.of("marks")]
        if attempts:  # all together: of each message it is asked what was told before any of them
            rows = pa.concat_tables(attempts, promote_options="permissive")
            if rows.num_rows:
                before = came.before.get("marks")
                self._touched.append(self._receipts.add(rows, lambda of: self._earlier(of, before)))

    def _earlier(self, of: pa.Table, version: int | None) -> pa.Table:
        """What `marks` told of the messages in ``of`` at ``version``."""
        return of.slice(0, 0) if version is None else truth.attempts_at(self._lake, version, of)

    def _add(self, came: Buckets) -> None:
        late = self._is_late(came.code) | (came.width > 1)
        self._touched.append(came.code)
        for number, part in self._by_broker(came.at(np.flatnonzero(~late)) if late.any() else came):
            self._recent_of(number).add(part)

    def _by_broker(self, buckets: Buckets) -> Iterator[tuple[int, Buckets]]:
        brokers = self._brokers_of(buckets.code)
        for number in distinct(brokers).tolist():
            yield number, buckets.at(np.flatnonzero(brokers == number)) if len(self._keys.brokers) > 1 else buckets

    def _recent_of(self, broker: int) -> Recent:
        if broker not in self._recent:
            self._recent[broker] = Recent(self._floor)
        return self._recent[broker]

    def _brokers_of(self, codes: Array) -> Array:
        return self._keys.broker_of(slots_of(codes) // len(KINDS))

    def _is_late(self, codes: Array) -> Array:
        """Of each of ``codes`` whether no memory has its second."""
        count = len(self._keys.brokers)
        floors = np.array([self._recent_of(number).floor for number in range(count)], np.int64)
        starts = starts_of(codes)
        late: Array = starts <= floors[self._brokers_of(codes)] if count else np.zeros(0, bool)
        return late | np.isin(starts, self._ahead) if len(self._ahead) else late

    def _is_forgotten(self, codes: Array) -> Array:
        """Of each of ``codes`` whether tables alone tell what it comes to."""
        since = np.array([self._receipts.known_since(number) for number in range(len(self._keys.brokers))], np.int64)
        firsts = slots_of(codes) % len(KINDS) == FOLDED
        older = starts_of(codes) <= since[self._brokers_of(codes)] if len(since) else firsts
        forgotten: Array = self._is_late(codes) | (firsts & older)
        return forgotten

    def _rolled_up(self, rows: pa.Table) -> None:
        """Partials have been replaced by these, coarser ones or an opening balance."""
        opening = rows.filter(pc.greater(rows.column("bucket_seconds"), DAY))
        for broker, (until, _) in levels_of(opening).items():
            self._let_go(self._keys.broker_number(broker), until)
        self._note_levels(_levels_of(rows))

    def _let_go(self, broker: int, until: int) -> None:
        """Ages up to second ``until`` are history that is kept no longer."""
        slots = self._newest.slots()
        mine = slots[(self._keys.broker_of(slots // len(KINDS)) == broker) & (self._newest.starts(slots) <= until)]
        self._touched.append(code_of(self._newest.starts(mine), mine))

    def _note_levels(self, levels: Mapping[str, tuple[int, int]]) -> None:
        """Partials are told by the minute, and by the hour, until these seconds at least: so is what is newest."""
        for broker, reached in levels.items():
            number = self._keys.broker_number(broker)
            known = self._levels.get(number, (-1, -1))
            now = max(known[0], reached[0]), max(known[1], reached[1])
            if now == known:
                continue
            self._levels[number] = now
            self._recent_of(number).rise(now[0])
            slots = self._newest.slots()
            mine = slots[self._keys.broker_of(slots // len(KINDS)) == number]
            starts, widths = self._newest.starts(mine), self._newest.widths(mine)
            finer = widths < self._widths(starts, np.full(len(mine), number))
            self._touched.append(code_of(starts[finer], mine[finer]))

    def _widths(self, starts: Array, brokers: Array) -> Array:
        """How long the buckets are that have these seconds."""
        levels = [self._levels.get(number, (-1, -1)) for number in range(len(self._keys.brokers))]
        until = np.array(levels, np.int64).reshape(-1, 2)[brokers]
        widths: Array = np.where(starts <= until[:, 1], HOUR, np.where(starts <= until[:, 0], MINUTE, 1))
        return widths

    def _leveled(self, buckets: Buckets) -> Buckets:
        """``buckets`` as long as partials of their time are."""
        starts, slots = starts_of(buckets.code), slots_of(buckets.code)
        widths = np.maximum(self._widths(starts, self._brokers_of(buckets.code)), buckets.width)
        return added_up([buckets.recoded(code_of(starts // widths * widths, slots), widths)])

    # -- what is told -------------------------------------------------------------------------------------------------

    def take(self, clocks: Mapping[str, int], epoch: int, revision: int) -> pa.Table | None:
        """The rows of `age_state` since the last time; ``clocks``: by broker its data time, in µs."""
        touched = distinct(np.zeros(0, np.int64), *self._touched)
        self._touched.clear()
        told, self._told = self._told, []
        if len(touched):
            forgotten = self._is_forgotten(touched)
            parts = [self._from_memory(touched[~forgotten]), self._from_tables(touched[forgotten])]
            now = added_up(parts)
            told.append(now)
            self._follow(now)
            for recent in self._recent.values():  # not before what came was told from memory
                recent.prune(MOST_RECENT // len(self._recent))
        slots = distinct(np.zeros(0, np.int64), *(slots_of(each.code) for each in told))
        if self._every:
            slots, self._every = distinct(slots, self._newest.slots()), False
        # The newest of a slot is told with whatever is told of it: the newest revision of a key has its newest bucket.
        starts = self._newest.starts(slots)
        every = together(told)
        others = (starts >= 0) & ~located(code_of(starts, slots), distinct(every.code))[1]
        again = self._newest.buckets(slots[others])
        rows = together([every, again])
        if len(rows.code) == 0:
            return None
        slots = slots_of(rows.code)
        known = np.array([clocks.get(broker, -1) for broker in self._keys.brokers], np.int64)
        as_of = known[self._brokers_of(rows.code)]
        as_of = np.where(as_of < 0, (starts_of(rows.code) + rows.width) * _MICROS, as_of)
        said = {"epoch": epoch, "revision": revision, "key": slots, "as_of": as_of}
        return rows_of(rows, self._keys, said, np.arange(len(slots)) < len(every.code))

    def _from_memory(self, codes: Array) -> Buckets:
        if len(codes) == 0:
            return empty()
        brokers = self._brokers_of(codes)
        parts = [self._recent_of(number).at(codes[brokers == number]) for number in distinct(brokers).tolist()]
        if len(self._receipts) and len(firsts := codes[slots_of(codes) % len(KINDS) == FOLDED]):
            parts.append(self._receipts.buckets(firsts))
        return _with_empty(added_up(parts), codes, np.ones(len(codes), np.int64))

    def _from_tables(self, codes: Array) -> Buckets:
        parts = []
        brokers, hours = self._brokers_of(codes), starts_of(codes) // HOUR
        for number, hour in sorted(set(zip(brokers.tolist(), hours.tolist(), strict=True))):
            mine = codes[(brokers == number) & (hours == hour)]
            firsts = bool((slots_of(mine) % len(KINDS) == FOLDED).any())
            queues = {queue for _, queue in self._keys.queues_of(slots_of(mine) // len(KINDS))}
            there = self._read(number, queues, hour * HOUR, (hour + 1) * HOUR, firsts=firsts)
            starts, slots = starts_of(mine), slots_of(mine)
            widths = self._widths(starts, np.full(len(mine), number))
            wanted, first = np.unique(code_of(starts // widths * widths, slots), return_index=True)
            parts.append(_with_empty(there.at(found(there, wanted)[0]), wanted, widths[first]))
        return together(parts)

    def _read(self, broker: int, queues: set[str], first: int, end: int, *, firsts: bool) -> Buckets:
        """What tables tell of ``queues`` from second ``first`` until before ``end``, whole hours; ``firsts``: of first
        attempts of named subscribers as well."""
        name = self._keys.brokers[broker]
        rows, fold = truth.partials(self._lake, name, queues, first, end)
        self._note_levels(levels_of(rows))
        parts = [of_partials(rows, self._keys)]
        if firsts:
            found = self._receipts.firsts(truth.attempts(self._lake, name, queues), fold)
            starts = starts_of(found.code)
            parts.append(found.at(np.flatnonzero((starts >= first) & (starts < end))))
        return self._leveled(together(parts))

    def _follow(self, told: Buckets) -> None:
        """Have the newest bucket of each slot as ``told`` has it."""
        slots, starts = slots_of(told.code), starts_of(told.code)
        held = self._newest.starts(slots)
        lost = np.flatnonzero((told.n == 0) & (starts <= held) & (held < starts + told.width))
        self._newest.drop(slots[lost])
        self._newest.put(told)
        for place in lost.tolist():
            self._newest.put(self._before(int(slots[place]), int(starts[place])))

    def _before(self, slot: int, second: int) -> Buckets:
        """The newest bucket of ``slot`` before ``second``, where nothing is left of the one that was its newest."""
        (broker,) = self._keys.broker_of(np.array([slot // len(KINDS)])).tolist()
        held = max(self._recent_of(broker).newest(slot, second), self._receipts.newest(slot, second))
        code = code_of([held], [slot])
        if held >= 0 and not self._is_forgotten(code).any():
            return self._from_memory(code)
        known = int(self._newest.starts(np.array([slot]))[0])
        queues = {queue for _, queue in self._keys.queues_of(np.array([slot // len(KINDS)]))}
        first = max(known, 0) // HOUR * HOUR
        there = self._read(broker, queues, first, (second // HOUR + 1) * HOUR, firsts=slot % len(KINDS) == FOLDED)
        mine = np.flatnonzero((slots_of(there.code) == slot) & (starts_of(there.code) < second))
        return there.at(mine[-1:])

    # -- a whole lake -------------------------------------------------------------------------------------------------

    def _take_over(self, held: Held) -> None:
        """Go on from the newest rows in gold, where there are any."""
        if held.epoch < 0:
            return
        rows = held.rows
        told = of_state(rows.filter(pc.greater(rows.column("count"), 0)), self._keys)
        told = told.at(np.argsort(told.code))
        self._newest.put(told)
        fine = Region((("bucket_seconds", ">=", MINUTE),)).read(self._lake.ensure("partials"), list(LEVELS))
        self._note_levels(_levels_of(fine))
        self._begin_memory(told, _latest())

    def _begin_memory(self, told: Buckets, latest: int, held: Container[int] = ()) -> None:
        """Nothing is held yet of what was ``told``, the newest of each slot at least, but of the brokers ``held``; what
        is after second ``latest`` is an event from the future."""
        starts, brokers = starts_of(told.code), self._brokers_of(told.code)
        ahead = starts > latest
        self._ahead = distinct(starts[ahead])
        if (version := self._feed.versions.get("marks")) is not None:
            since = int(starts[~ahead].max(initial=0)) - REMEMBERED_SECONDS
            rows = truth.attempts_since(self._lake, version, datetime.fromtimestamp(max(since, 0), UTC))
            self._receipts.load(rows, since * _MICROS)
            if rows.num_rows:  # not all of them are remembered, and of some partials tell, too
                held = ()
        for number in range(len(self._keys.brokers)):
            if number not in held:
                self._recent_of(number).rise(min(int(starts[brokers == number].max(initial=-1)), latest))
        self._whole = True

    def _from_start(self, flush: Callable[[], None]) -> None:
        """Tell every bucket that there is, the oldest first."""
        self._clear()
        files, versions = self._feed.files(), self._feed.versions
        newest, latest = dict[str, int](), _latest()
        for path in files["partials"]:
            levels = read_file(path, LEVELS)
            self._note_levels(_levels_of(levels))
            for broker, second in newest_seconds(levels, latest).items():
                newest[broker] = max(second, newest.get(broker, second))
        pending, waiting = [], 0
        if files["marks"]:
            known = "partials" in versions
            table = delta_table(self._lake.path("partials"), versions["partials"]) if known else None
            fold = None if table is None else table.transaction_version(APPLICATION)
            firsts = self._receipts.firsts(truth.attempts(self._lake), fold or 0)
            pending.append(self._leveled(firsts))
            if len(firsts.code):
                newest.clear()
        held = {self._keys.broker_number(broker): second for broker, second in newest.items()}
        for number, second in held.items():  # what comes next is of these seconds, too
            self._recent_of(number).rise(second - MOST_SECONDS)
        for _, rows, start in in_order(files["partials"], PARTIAL_COLUMNS):
            if sum(len(each.code) for each in pending[1:]) >= MOST_WAITING:
                sums = added_up(pending)
                done = starts_of(sums.code) + sums.width <= start
                self._tell(sums.at(np.flatnonzero(done)))
                pending = [sums.at(np.flatnonzero(~done))]
                waiting += int(done.sum())
            if waiting > MOST_WAITING:
                flush()
                waiting = 0
            mine = of_partials(rows, self._keys)
            pending.append(self._leveled(mine))
            self._hold(mine, held, latest)
        self._tell(added_up(pending))
        self._begin_memory(self._newest.buckets(self._newest.slots()), latest, held)

    def _hold(self, told: Buckets, brokers: Container[int], latest: int) -> None:
        """Have memory, of ``brokers``, go on from ``told``."""
        mine = told.at(np.flatnonzero(~self._is_late(told.code) & (told.width == 1) & (starts_of(told.code) <= latest)))
        for number, part in self._by_broker(mine):
            if number in brokers:
                self._recent_of(number).add(part)
                self._recent_of(number).prune(MOST_RECENT // len(self._recent))

    def again(self, broker: str, queue: str) -> None:
        """Have every bucket of ``queue`` told anew."""
        there = self._read(self._keys.broker_number(broker), {queue}, 0, FAR, firsts=True)
        self._newest.drop(distinct(slots_of(there.code)))
        self._tell(there)

    def _tell(self, told: Buckets) -> None:
        self._newest.put(told)
        self._told.append(told)


def _with_empty(there: Buckets, codes: Array, widths: Array) -> Buckets:
    """``there`` with a bucket of nothing for each of ``codes`` that it lacks; in order."""
    _, known = found(there, codes)
    if known.all():
        return there
    lacking, zero = codes[~known], np.zeros(int((~known).sum()), np.int64)
    none = Buckets(lacking, widths[~known], zero, zero * 0.0, zero * 0.0, zero, zero, zero[:0], zero[:0])
    return added_up([there, none])


def _latest() -> int:
    """The last second that is not of the future."""
    return int(time.time()) + AHEAD_SECONDS


def newest_seconds(rows: pa.Table, latest: int) -> dict[str, int]:
    """By broker the newest second up to ``latest`` that ``rows`` of partials (LEVELS) tell of by itself."""
    until = pa.scalar(latest * _MICROS).cast(pa.timestamp("us")).cast(TIMESTAMP)
    single = pc.and_(pc.equal(rows.column("bucket_seconds"), 1), pc.less_equal(rows.column("bucket_start"), until))
    told = rows.filter(single).group_by("broker", use_threads=False).aggregate([("bucket_start", "max")])
    starts = told.column("bucket_start_max").cast(pa.int64()).to_numpy() // _MICROS
    return dict(zip(told.column("broker").to_pylist(), starts.tolist(), strict=True))


def _levels_of(rows: pa.Table) -> dict[str, tuple[int, int]]:
    """As :func:`levels_of`; of the time that an opening balance is of there are no ages."""
    return levels_of(rows.filter(pc.less_equal(rows.column("bucket_seconds"), HOUR)))


def _attempts(rows: pa.Table) -> pa.Table:
    return first_attempts(rows.select([name for name in MARK_COLUMNS if name in rows.column_names]))
