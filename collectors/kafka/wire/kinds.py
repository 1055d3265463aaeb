"""Groups of other kinds than consumers: share groups (KIP-932) and groups of Kafka Streams' protocol (KIP-1071)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collectors.kafka.wire.codec import END, Reader, Request, array, text
from collectors.kafka.wire.groups import Committed, Members, topics_of

SHARE_GROUP_DESCRIBE, SHARE_GROUP_OFFSETS, STREAMS_GROUP_DESCRIBE = 77, 90, 89
_NULL = 0xFF


class Shared(NamedTuple):
    """A share group's starts, as if it had committed them: all before them are done; and how many messages wait from
    there on, where the broker counts them (Kafka 4.2 and newer)."""

    committed: Committed
    lags: Mapping[tuple[str, int], int]


def share_describe_request(names: Sequence[str]) -> Request:
    """Asks for the members of share groups."""
    return Request(SHARE_GROUP_DESCRIBE, 1, array(text(name) for name in names) + b"\0" + END)


def read_share_members(answer: Reader) -> dict[str, Members | int]:
    """Group → members, or the error that says why they are not told."""
    answer.integer()
    found: dict[str, Members | int] = {}
    for _ in range(answer.count()):
        error, _, name, _ = answer.short(), answer.text(), answer.text(), answer.text()
        answer.take(8)
        answer.text()
        total, topics = answer.count(), Counter[str]()
        for _ in range(total):
            answer.text()
            answer.text()
            answer.integer()
            answer.text()
            answer.text()
            answer.array(answer.text)
            topics.update(topics_of(answer))
            answer.tags()
        answer.integer()
        answer.tags()
        found[name] = error or Members(total, topics)
    return found


def share_offsets_request(names: Sequence[str], newest: int) -> Request:
    """Asks where share groups start on all topics that they have read; version 1 counts what waits, too."""
    version = 1 if newest >= 1 else 0
    return Request(SHARE_GROUP_OFFSETS, version, array(text(name) + b"\0" + END for name in names) + END)


def read_share_offsets(answer: Reader, version: int) -> dict[str, Shared]:
    """Group → where it starts."""
    answer.integer()
    found = {}
    for _ in range(answer.count()):
        name = answer.text()
        offsets: dict[str, dict[int, int]] = {}
        errors: dict[tuple[str, int], int] = {}
        lags: dict[tuple[str, int], int] = {}
        for _ in range(answer.count()):
            topic = answer.text()
            answer.take(16)
            starts = offsets[topic] = {}
            for _ in range(answer.count()):
                partition, start, _ = answer.integer(), answer.long(), answer.integer()
                lag = answer.long() if version >= 1 else -1
                error, _ = answer.short(), answer.text()
                answer.tags()
                starts[partition] = start
                if error:
                    errors[topic, partition] = error
                elif lag >= 0:
                    lags[topic, partition] = lag
            answer.tags()
        error, _ = answer.short(), answer.text()
        answer.tags()
        found[name] = Shared(Committed(error, offsets, errors), lags)
    return found


def streams_describe_request(names: Sequence[str]) -> Request:
    """Asks for the members of groups of Kafka Streams' protocol."""
    return Request(STREAMS_GROUP_DESCRIBE, 0, array(text(name) for name in names) + b"\0" + END)


def read_streams_members(answer: Reader) -> dict[str, Members | int]:
    """Group → members, by the topics that their active tasks read; or the error."""
    answer.integer()
    found: dict[str, Members | int] = {}
    for _ in range(answer.count()):
        error, _, name, _ = answer.short(), answer.text(), answer.text(), answer.text()
        answer.take(8)
        sources = _sources(answer)
        total, topics = answer.count(), Counter[str]()
        for _ in range(total):
            topics.update({topic for part in _active(answer) for topic in sources.get(part, ())})
        answer.integer()
        answer.tags()
        found[name] = error or Members(total, topics)
    return found


def _sources(answer: Reader) -> dict[str, list[str]]:
    """Subtopology → the topics that it reads."""
    if answer.byte() == _NULL:
        return {}
    answer.integer()
    found = {}
    for _ in range(answer.count()):
        name, topics = answer.text(), answer.array(answer.text)
        answer.array(answer.text)
        for _ in range(2):  # changelogs, and repartition topics, which are read as well
            inner = [_topic(answer) for _ in range(answer.count())]
        found[name] = topics + inner
        answer.tags()
    answer.tags()
    return found


def _topic(answer: Reader) -> str:
    name, _, _ = answer.text(), answer.integer(), answer.short()
    for _ in range(answer.count()):
        answer.text()
        answer.text()
        answer.tags()
    answer.tags()
    return name


def _active(answer: Reader) -> list[str]:
    """The subtopologies of one member's active tasks."""
    answer.text()
    answer.integer()
    for _ in range(4):  # instance, rack, client, host
        answer.text()
    answer.integer()
    answer.text()
    if answer.byte() != _NULL:  # where it may be asked for its state
        answer.text()
        answer.take(2)
        answer.tags()
    for _ in range(answer.count()):
        answer.text()
        answer.text()
        answer.tags()
    for _ in range(2):  # how far its tasks' states are
        for _ in range(answer.count()):
            answer.text()
            answer.take(12)
            answer.tags()
    active = _tasks(answer)
    _tasks(answer)  # what it is to have
    answer.byte()
    answer.tags()
    return active


def _tasks(answer: Reader) -> list[str]:
    kinds = []
    for _ in range(3):  # active, standby, warming up
        some = []
        for _ in range(answer.count()):
            some.append(answer.text())
            answer.take(4 * answer.count())
            answer.tags()
        kinds.append(some)
    answer.tags()
    return kinds[0]
