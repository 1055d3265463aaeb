"""Reading heads within a bound: what is read first, what waits, and what is told of it meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.kafka.wire.codec import END, Reader, array, blob, text
from collectors.kafka.cluster import Cluster, Job
from collectors.kafka.offset_timestamps import NOT_YET, OffsetTimestamps
from collectors.kafka.reading import Earlier, Found, Head, Place
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.wire.records import Stamp
from tests.collectors.kafka.test_wire import batch

#: Milliseconds since 1970 of the record at offset 0; each further one is so much younger.
BASE, APART = 1_700_000_000_000, 10
_ASKED = struct.Struct(">iiqiqiB")


class Answering(Cluster):
    """A broker that answers Fetch out of its head: each record is a batch of its own, and as many as there is room
    for are given, as Kafka does: the first whatever its size. ``read`` counts the bytes of its answers."""

    def __init__(self, sizes: Callable[[str, int], int]) -> None:
        super().__init__(KafkaBroker())
        self._sizes = sizes
        self.read = 0
        self.asked: list[Place] = []

    def do(self, jobs: Mapping[int, Sequence[Job]]) -> dict[int, str]:
        for queue in jobs.values():
            for job in queue:
                answer = self._answer(Reader(job.request.body))
                self.read += len(answer)
                job.take(Reader(answer))
        return {}

    def _answer(self, asked: Reader) -> bytes:
        asked.take(12)
        left, first = asked.integer(), True
        asked.take(9)
        topics = []
        for _ in range(asked.count()):
            topic, partitions = asked.text(), []
            for _ in range(asked.count()):
                partition, _, offset, _, _, room, _ = _ASKED.unpack(asked.take(_ASKED.size))
                self.asked.append((topic, partition))
                size = self._sizes(topic, partition)
                one = batch(offset, [BASE + APART * offset], gaps=[0], padding=size)
                records = one * max(1 if first else 0, min(room, left) // len(one))
                left, first = left - len(records), False
                head = struct.pack(">ihqqq", partition, 0, 1 << 40, -1, 0)
                partitions.append(head + b"\0" + struct.pack(">i", -1) + blob(records) + END)
            topics.append(text(topic) + array(partitions) + END)
            asked.tags()
        return struct.pack(">ihi", 0, 0, 0) + array(topics) + END


class Cycles:
    """OffsetTimestamps of group ``g`` read cycle by cycle, a second apart."""

    def __init__(self, budget: int, sizes: Callable[[str, int], int] = lambda topic, partition: 100) -> None:
        self.cluster = Answering(sizes)
        self.heads = OffsetTimestamps(self.cluster, budget)
        self.now = 0

    def read(self, offsets: Mapping[Place, int], end: int = 1 << 40, passed: int = 1000) -> dict[Place, Found]:
        self.now += passed
        self.cluster.read, self.cluster.asked = 0, []
        wanted = {place: Head(*place, offset) for place, offset in offsets.items()}
        ends: dict[Place, int | str] = dict.fromkeys(offsets, end)
        found = self.heads.read({"g": wanted}, ends, lambda *_: 1, {}, BASE + 10**9 + self.now, self.now)
        return {place: found[head] for place, head in wanted.items()}


def places(number: int) -> list[Place]:
    return [("t", partition) for partition in range(number)]


def test_moving_heads_are_read_in_turn_within_the_bound_and_each_is_told_with_its_staleness() -> None:
    cycles, some = Cycles(32 << 10), places(1000)
    worst = 0
    for number in range(40):
        found = cycles.read(dict.fromkeys(some, 1000 + number))
        assert cycles.cluster.read <= 32 << 10
        if number >= 20:
            stale = [cycles.now - one.tick if isinstance(one, Earlier) else 0 for one in found.values()]
            assert not any(isinstance(one, str) for one in found.values())
            worst = max(worst, *stale)
    each = len(set(cycles.cluster.asked))
    assert each > 50
    assert worst <= 1000 * (1000 // each + 2)


def test_an_age_that_could_not_be_read_again_is_the_one_that_was_read() -> None:
    cycles, some = Cycles(1 << 10), places(30)
    first: dict[Place, Found] = {}
    for _ in range(40):
        first = cycles.read(dict.fromkeys(some, 1000))
    assert all(isinstance(one, Stamp) for one in first.values())
    then = cycles.now
    moved = cycles.read(dict.fromkeys(some, 1001))
    earlier = {one for one in moved.values() if isinstance(one, Earlier)}
    assert earlier == {Earlier(BASE + APART * 1000, BASE + 10**9 + then, then)}


def test_heads_that_stand_come_before_those_that_move() -> None:
    cycles, some = Cycles(32 << 10), places(1000)
    for number in range(20):
        cycles.read(dict.fromkeys(some, 1000 + number))
    stuck = dict.fromkeys(some[-20:], 5000)
    cycles.read(dict.fromkeys(some, 2000) | stuck)
    found = cycles.read(dict.fromkeys(some, 2001) | stuck)
    assert all(isinstance(found[place], Stamp) for place in stuck)
    again = cycles.read(dict.fromkeys(some, 2002) | stuck)
    assert all(isinstance(again[place], Stamp) for place in stuck)
    assert not set(stuck) & set(cycles.cluster.asked)  # known, and not read again


def test_heads_that_are_new_in_each_cycle_keep_no_other_from_being_read() -> None:
    cycles, some = Cycles(32 << 10), places(500)
    for number in range(20):
        cycles.read(dict.fromkeys(some, 1000 + number))
    ever: set[Place] = set()
    for number in range(30):
        fresh = {("fresh", 10_000 * number + at): 7 for at in range(500)}
        cycles.read(dict.fromkeys(some, 2000 + number) | fresh)
        ever |= {place for place in cycles.cluster.asked if place[0] == "t"}
    assert ever == set(some)


def test_where_nothing_waited_at_the_last_reading_the_age_was_none_then() -> None:
    cycles, some = Cycles(1 << 10), places(50)
    cycles.read({}, end=100)
    cycles.read(dict.fromkeys(some, 50), end=100)
    then = cycles.now
    found = cycles.read(dict.fromkeys(some, 100), end=200)
    told = [one for one in found.values() if isinstance(one, Earlier)]
    assert told and set(told) == {Earlier(BASE + 10**9 + then, BASE + 10**9 + then, then)}


def test_batches_of_any_size_are_read_within_the_bound_in_the_end() -> None:
    def sizes(topic: str, partition: int) -> int:
        return 50_000 if partition % 10 == 0 else 100

    cycles, some = Cycles(256 << 10, sizes), places(100)
    unread = {NOT_YET}
    for _ in range(12):
        found = cycles.read(dict.fromkeys(some, 1000))
        assert cycles.cluster.read <= 256 << 10
        unread = {one for one in found.values() if isinstance(one, str)}
    assert not unread


def test_a_batch_larger_than_the_bound_is_read_alone() -> None:
    cycles, some = Cycles(1 << 10, lambda topic, partition: 30_000), places(3)
    for _ in range(12):
        found = cycles.read(dict.fromkeys(some, 1000))
        assert cycles.cluster.read <= 64 << 10
    assert all(isinstance(one, Stamp) for one in found.values())


@settings(max_examples=60)
@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 5), max_size=10), max_size=12), st.integers(1, 8))
def test_what_is_told_was_true_when_it_was_read(steps: list[dict[int, int]], budget: int) -> None:
    cycles = Cycles(budget << 8)
    offsets: dict[Place, int] = {}
    history: list[tuple[int, int, dict[Place, int]]] = []
    for step in steps:
        for partition, move in step.items():
            offsets["t", partition] = offsets.get(("t", partition), 0) + move
        found = cycles.read(offsets)
        history.append((cycles.now, BASE + 10**9 + cycles.now, dict(offsets)))
        for place, one in found.items():
            if isinstance(one, Stamp):
                assert one == Stamp(offsets[place], BASE + APART * offsets[place], False)
            elif isinstance(one, Earlier):
                ((at, then),) = [(at, then) for tick, at, then in history if tick == one.tick]
                assert (one.at, one.time) == (at, BASE + APART * then[place])
            else:
                assert one == NOT_YET
