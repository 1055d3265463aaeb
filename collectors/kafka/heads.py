"""When the messages at the heads of groups were written: one record for each, batched, and remembered while it stands.

A record is read once for each offset that is committed: a group that stands still costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from collectors.base import ConnectionLost
from collectors.kafka.cluster import Cluster, Job
from collectors.kafka.errors import MOVED, words
from collectors.kafka.reading import Head, Place
from collectors.kafka.wire.codec import Reader
from collectors.kafka.wire.offsets import Fetched, Want, fetch_request, read_fetch
from collectors.kafka.wire.records import Stamp, stamp_at

#: Bytes asked for of each partition: the first batch must fit. What does not is asked for again with more room.
_ROOM, _MOST_ROOM = 4096, 64 << 20
_SPARE_ROOMS = 1000
_ANSWER = 8 << 20
_PARTITIONS = 1000
_ROUNDS = 8

_UNREAD = "the message could not be found in the log"
_OVER_BUDGET = "reading the messages would take more than head_bytes in a cycle"


@dataclass(slots=True)
class _Search:
    head: Head
    at: int
    room: int
    end: int


class Heads:
    """Finds messages' times. ``budget``: the most bytes of records that one cycle may bring."""

    def __init__(self, cluster: Cluster, budget: int) -> None:
        self._cluster = cluster
        self._budget = budget
        self._known: dict[Head, Stamp | str | None] = {}
        self._found: dict[Head, Stamp | str | None] = {}
        self._left = budget
        self._rooms: dict[Place, int] = {}

    def forget(self) -> None:
        """Topics may have been made anew: offsets mean other messages now."""
        self._known, self._found = {}, {}
        self._rooms.clear()

    def begin(self) -> None:
        """A new cycle: what the last one found is remembered, and anything older is forgotten."""
        self._known, self._found = self._found, {}
        self._left = self._budget
        if len(self._rooms) > 2 * len(self._known) + _SPARE_ROOMS:
            self._rooms.clear()  # partitions come and go

    def read(
        self,
        wanted: Mapping[Head, int],
        leader: Callable[[str, int], int],
        starts: dict[Place, int | str],
    ) -> Mapping[Head, Stamp | str | None]:
        """The message at each head; ``wanted`` maps it to the partition's end. Also notes logs' first offsets."""
        known, found = self._known, self._found
        searches: list[_Search] = []
        for head, end in wanted.items():
            stamp = known.get(head)
            if isinstance(stamp, Stamp):
                found[head] = stamp
            else:
                room = self._rooms.get((head.topic, head.partition), _ROOM)
                searches.append(_Search(head, head.offset, room, end))
                found[head] = _UNREAD
        for _ in range(_ROUNDS):
            if not searches or self._left <= 0:
                break
            searches = self._round(searches, leader, starts, found)
        for search in searches:
            found[search.head] = _OVER_BUDGET if self._left <= 0 else _UNREAD
        return found

    def _round(
        self,
        searches: list[_Search],
        leader: Callable[[str, int], int],
        starts: dict[Place, int | str],
        found: dict[Head, Stamp | str | None],
    ) -> list[_Search]:
        again: list[_Search] = []
        jobs: dict[int, list[Job]] = defaultdict(list)
        by_node: dict[int, list[_Search]] = defaultdict(list)
        for search in searches:
            by_node[leader(search.head.topic, search.head.partition)].append(search)

        def take(batch: Mapping[Place, _Search], answer: Reader) -> None:
            self._left -= len(answer.data)
            for topic, partitions in read_fetch(answer).items():
                for partition, fetched in partitions.items():
                    search = batch[topic, partition]
                    if fetched.error == 0:
                        starts[topic, partition] = fetched.start
                    result = self._judge(search, fetched)
                    if isinstance(result, _Search):
                        again.append(result)
                    else:
                        found[search.head] = result

        def job(batch: Mapping[Place, _Search]) -> Job:
            topics: dict[str, list[Want]] = defaultdict(list)
            for (topic, partition), search in batch.items():
                topics[topic].append(Want(partition, search.at, search.room))
            return Job(fetch_request(topics, room=_ANSWER), lambda answer: take(batch, answer))

        for node, some in by_node.items():
            if node < 0:
                for search in some:
                    found[search.head] = words(5)
            else:
                jobs[node] = [job(batch) for batch in _batches(some)]
        for node, reason in self._cluster.do(jobs).items():
            for search in by_node[node]:
                if found[search.head] == _UNREAD:
                    found[search.head] = reason
        return again

    def _judge(self, search: _Search, fetched: Fetched) -> _Search | Stamp | str | None:
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
        if isinstance(result, Stamp):
            if search.room > _ROOM:  # remembered as it was needed: what one large batch asked for must not stay
                self._rooms[search.head.topic, search.head.partition] = max(_ROOM, min(search.room, need))
            return result
        if result >= search.end:
            return None  # only control records were between the head and the end
        if result == search.at:
            search.room = need if need > search.room else search.room * 16
            if search.room > _MOST_ROOM:
                return _UNREAD
        search.at = result
        return search


def _bytes_needed(records: bytes) -> int:
    """The size of the first batch as its header tells it, and a quarter for the next to be larger; 0 without one."""
    return (12 + int.from_bytes(records[8:12], "big", signed=True)) * 5 // 4 if len(records) >= 12 else 0


def _batches(searches: Iterable[_Search]) -> Iterator[dict[Place, _Search]]:
    """Requests: each asks for a partition once, and for no more bytes than one answer may have."""
    layers: list[dict[Place, _Search]] = []
    times: dict[Place, int] = {}
    for search in searches:
        place = search.head.topic, search.head.partition
        layer = times[place] = times.get(place, -1) + 1
        if layer == len(layers):
            layers.append({})
        layers[layer][place] = search
    for chosen in layers:
        batch: dict[Place, _Search] = {}
        room = 0
        for place, search in chosen.items():
            if batch and (len(batch) >= _PARTITIONS or room + search.room > _ANSWER):
                yield batch
                batch, room = {}, 0
            batch[place] = search
            room += search.room
        yield batch
