"""When the messages at the heads of groups were written: one record for each, batched, and remembered while it stands.

A record is read once for each offset that is committed: a group that stands still costs nothing. What a cycle may bring
is bounded, so where many groups move, each cycle reads the heads whose age has been known for the shortest or not at
all, and of the others it is told what their age was when it was last read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from brokers.errors import ConnectionLost
from brokers.kafka.wire.codec import Reader
from collectors.kafka.cluster import Cluster, Job
from collectors.kafka.errors import MOVED, words
from collectors.kafka.reading import Earlier, Found, Head, Place
from collectors.kafka.rooms import Rooms
from collectors.kafka.wire.offsets import Fetched, Want, fetch_request, read_fetch
from collectors.kafka.wire.records import Stamp, stamp_at

#: The most that is asked for of one partition, and in one answer.
_MOST_ROOM, _ANSWER = 64 << 20, 8 << 20
#: What an answer holds of each partition beside its records, about.
_BESIDE = 48
_PARTITIONS = 1000
_ROUNDS = 12
#: OffsetTimestamps that are read first where nothing is known of the sizes of batches: to learn from.
_TRIAL = 500
#: Milliseconds by which heads that stand, and those that were never read, come before those that move: long enough to
#: come first, and not so long that the others would never be read where there are too many of them.
_STANDS, _UNKNOWN = 10_000, 15_000

_UNREAD = "the message could not be found in the log"
NOT_YET = "the message has not been read yet: there are more to read than head_bytes allows in a cycle"


@dataclass(slots=True)
class Search:
    head: Head
    at: int
    room: int
    end: int


class OffsetTimestamps:
    """Finds messages' times. ``budget``: the most bytes that one cycle may bring; one batch alone may be larger."""

    def __init__(self, cluster: Cluster, budget: int) -> None:
        self._cluster = cluster
        self._budget = self._left = budget
        self._rooms = Rooms()
        self.forget()

    def close(self) -> None:
        """Let go of what is needed for reading."""

    def forget(self) -> None:
        """Topics may have been recreated: offsets mean other messages now."""
        self._known: dict[Head, Found] = {}
        self._found: dict[Head, Found] = {}
        self._open: dict[Head, Search] = {}
        self._last: dict[str, Mapping[Place, Head]] = {}
        self._ends: Mapping[Place, int | str] = {}
        self._unread_since: dict[Head, int] = {}
        self._at = self._tick = 0
        self._rooms.forget()

    def read(
        self,
        followers: Mapping[str, Mapping[Place, Head]],
        ends: Mapping[Place, int | str],
        leader: Callable[[str, int], int],
        starts: dict[Place, int | str],
        at: int,
        tick: int,
    ) -> Mapping[Head, Found]:
        """The message at each head, in a new cycle.

        ``followers``: who waits (a group) → partition → head. ``at``: now, in milliseconds since 1970; ``tick``: now,
        in milliseconds on a clock that is never set. Notes logs' first offsets in ``starts``.
        """
        self._known, self._found = self._found, {}
        self._left = self._budget
        urgency = self._urgency(followers, tick)
        self._last, self._ends, self._at, self._tick = dict(followers), ends, at, tick
        self._open = {head: search for head, search in self._open.items() if head in urgency}
        self._search(sorted(urgency, key=urgency.__getitem__), leader, starts)
        return self._found

    def read_more(
        self, heads: Iterable[Head], leader: Callable[[str, int], int], starts: dict[Place, int | str]
    ) -> Mapping[Head, Found]:
        """The messages at further heads, too, in the same cycle and with what is left of its budget."""
        due = []
        for head in heads:
            stamp = self._found.get(head, self._known.get(head))
            self._found[head] = stamp if isinstance(stamp, Stamp) else NOT_YET
            if not isinstance(stamp, Stamp):
                due.append(head)
        self._search(due, leader, starts)
        return self._found

    def _urgency(self, followers: Mapping[str, Mapping[Place, Head]], tick: int) -> dict[Head, int]:
        """The heads that are to be read, the least number first; notes what is known of all heads until then."""
        known, found, ends = self._known, self._found, self._ends
        since_before, self._unread_since = self._unread_since, {}
        urgency: dict[Head, int] = {}
        for group, places in followers.items():
            last = self._last.get(group, {})
            for place, head in places.items():
                if head in found:
                    continue
                stamp = known.get(head)
                if isinstance(stamp, Stamp):
                    found[head] = stamp
                    continue
                stands = head in known
                before = last.get(place)
                if not isinstance(stamp, Earlier):
                    end = ends.get(place)
                    if isinstance(end, int) and head.offset >= end:
                        stamp = Earlier(self._at, self._at, self._tick)  # written since: nothing waited then
                    elif before is not None and before in known:
                        stamp = self._then(known[before])
                if isinstance(stamp, Earlier):
                    found[head] = stamp
                    urgency[head] = stamp.tick - _STANDS * stands
                else:
                    since = since_before.get(before or head, tick)
                    self._unread_since[head] = since
                    found[head] = NOT_YET
                    urgency[head] = since - _UNKNOWN - _STANDS * stands
        return urgency

    def _then(self, before: Found) -> Found:
        """What was known of a head that the group has left since."""
        if isinstance(before, Stamp):
            return Earlier(before.time, self._at, self._tick)
        return Earlier(self._at, self._at, self._tick) if before is None else before

    def _begun(self, head: Head) -> Search:
        """The search for a head as an earlier cycle left it, or a new one."""
        end = self._ends.get((head.topic, head.partition))
        search = self._open.get(head) or Search(head, head.offset, 0, 0)
        search.end = end if isinstance(end, int) else 1 << 62
        return search

    def _search(self, due: list[Head], leader: Callable[[str, int], int], starts: dict[Place, int | str]) -> None:
        """Read as much of ``due``, in its order, as the budget allows."""
        waiting: deque[Head | Search] = deque(due)
        for _ in range(_ROUNDS):
            chosen, reserved = list[Search](), 0
            while waiting:
                first = waiting[0]
                search = first if isinstance(first, Search) else self._begun(first)
                place = search.head.topic, search.head.partition
                search.room = search.room or self._rooms.of(place)
                if reserved + search.room + _BESIDE > self._left and (chosen or self._left < self._budget):
                    break  # what is less urgent waits, too, though it might fit
                if len(chosen) >= _TRIAL and not self._rooms.known:
                    break
                reserved += search.room + _BESIDE
                waiting.popleft()
                chosen.append(search)
            if not chosen:
                break
            waiting.extendleft(reversed(self._round(chosen, leader, starts)))
        for begun in waiting:
            if isinstance(begun, Search):
                self._open[begun.head] = begun

    def _round(
        self, searches: list[Search], leader: Callable[[str, int], int], starts: dict[Place, int | str]
    ) -> list[Search]:
        """Read once for each of ``searches``; returns those that are to go on."""
        found = self._found
        again: list[Search] = []
        jobs: dict[int, list[Job]] = defaultdict(list)
        by_node: dict[int, list[Search]] = defaultdict(list)
        for search in searches:
            by_node[leader(search.head.topic, search.head.partition)].append(search)
        unanswered = {search.head: search for search in searches}

        def take(batch: Mapping[Place, Search], answer: Reader) -> None:
            self._left -= len(answer.data)
            for topic, partitions in read_fetch(answer).items():
                for partition, fetched in partitions.items():
                    search = batch[topic, partition]
                    unanswered.pop(search.head, None)
                    if fetched.error == 0:
                        starts[topic, partition] = fetched.start
                    result = self._judge(search, fetched)
                    if isinstance(result, Search):
                        again.append(result)
                    else:
                        found[search.head] = result
                        self._open.pop(search.head, None)

        def job(batch: Mapping[Place, Search]) -> Job:
            topics: dict[str, list[Want]] = defaultdict(list)
            for (topic, partition), search in batch.items():
                topics[topic].append(Want(partition, search.at, search.room))
            room = sum(search.room for search in batch.values())
            return Job(fetch_request(topics, room=room), lambda answer: take(batch, answer))

        for node, some in by_node.items():
            if node < 0:
                for search in some:
                    found[search.head] = words(5)
            else:
                jobs[node] = [job(batch) for batch in _batches(some)]
        for node, reason in self._cluster.do(jobs).items():
            for search in by_node[node]:
                if search.head in unanswered:
                    found[search.head] = reason
        return again

    def _judge(self, search: Search, fetched: Fetched) -> Search | Stamp | str | None:
        """What an answer says of a head: found, nothing there, unknown, or go on searching."""
        if fetched.error:
            if fetched.error in MOVED:
                self._cluster.forget_leaders()
            return words(fetched.error)
        try:
            result = stamp_at(fetched.records, search.at)
        except ConnectionLost as error:  # one batch that we cannot read: the broker's other answers are sound
            return str(error)
        need = _bytes_needed(fetched.records)
        place = search.head.topic, search.head.partition
        if isinstance(result, Stamp):
            self._rooms.learn(place, need)
            return result
        if result >= search.end:
            return None  # only control records were between the head and the end
        if result == search.at:
            search.room = need if need > search.room else search.room * 4
            if search.room > _MOST_ROOM:
                return _UNREAD
            self._open[search.head] = search  # it asks for more at once where it must wait for another cycle
        search.at = result
        return search


def _bytes_needed(records: bytes) -> int:
    """The size of the first batch as its header tells it, and a quarter for the next to be larger; 0 without one."""
    return (12 + int.from_bytes(records[8:12], "big", signed=True)) * 5 // 4 if len(records) >= 12 else 0


def _batches(searches: Iterable[Search]) -> Iterator[dict[Place, Search]]:
    """Requests: each asks for a partition once, and for no more bytes than one answer may have."""
    layers: list[dict[Place, Search]] = []
    times: dict[Place, int] = {}
    for search in searches:
        place = search.head.topic, search.head.partition
        layer = times[place] = times.get(place, -1) + 1
        if layer == len(layers):
            layers.append({})
        layers[layer][place] = search
    for chosen in layers:
        batch: dict[Place, Search] = {}
        room = 0
        for place, search in chosen.items():
            if batch and (len(batch) >= _PARTITIONS or room + search.room > _ANSWER):
                yield batch
                batch, room = {}, 0
            batch[place] = search
            room += search.room
        yield batch
