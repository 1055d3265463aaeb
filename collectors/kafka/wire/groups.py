"""Groups: their states, their members, and what they have committed. Share and streams groups: ``others.py``."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from brokers.errors import ConnectionLost
from brokers.kafka.wire.codec import END, Reader, Request, array, text
from collectors.kafka.errors import NO_SUCH_GROUP

LIST_GROUPS, DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE, OFFSET_FETCH = 16, 15, 69, 9
_COMMITTED = struct.Struct(">iqiBhB")
_EMPTY = (0, 1)  # a null and an empty string


class Listed(NamedTuple):
    """A group as its coordinator lists it. ``kind`` is empty where the broker is too old to tell (before 3.8)."""

    name: str
    protocol: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class Members:
    """How many members a group has, and how many of them are assigned partitions of each topic."""

    total: int
    by_topic: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offsets: topic → partition → offset (−1: none), and the errors of those not told.

    ``lags``: what waits behind an offset, where the broker tells that by itself: of share groups, which finish records
    out of order.
    """

    error: int = 0
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    errors: Mapping[tuple[str, int], int] = field(default_factory=dict)
    lags: Mapping[tuple[str, int], int] = field(default_factory=dict)


def list_groups_request(newest: int) -> Request:
    """Asks a broker for the groups that it coordinates; version 5 tells their kind, too."""
    version = 5 if newest >= 5 else 4
    return Request(LIST_GROUPS, version, array(()) * (version - 3) + END)


def read_list_groups(answer: Reader, version: int) -> tuple[int, list[Listed]]:
    """The error, and the groups."""
    answer.integer()
    error = answer.short()

    def group() -> Listed:
        found = Listed(answer.text(), answer.text(), answer.text(), answer.text() if version >= 5 else "")
        answer.tags()
        return found

    return error, answer.array(group)


def describe_request(names: Sequence[str], *, classic: bool) -> Request:
    """Asks for the members of groups, all of them classic or all of the consumer protocol (KIP-848)."""
    body = array(text(name) for name in names) + b"\0" + END
    return Request(DESCRIBE_GROUPS, 5, body) if classic else Request(CONSUMER_GROUP_DESCRIBE, 0, body)


def read_classic_members(answer: Reader) -> dict[str, Members | int]:
    """Group → members, or the error that says why they are not told."""
    answer.integer()
    found: dict[str, Members | int] = {}
    for _ in range(answer.count()):
        error, name, state = answer.short(), answer.text(), answer.text()
        for _ in range(2):  # protocol type, assignor
            answer.text()
        total, topics = answer.count(), Counter[str]()
        for _ in range(total):
            for _ in range(4):  # member, instance, client, host
                answer.text()
            answer.blob()
            topics.update(_assigned(answer.blob()))
            answer.tags()
        answer.integer()
        answer.tags()
        if state == "Dead":
            error = error or NO_SUCH_GROUP
        found[name] = error or Members(total, topics)
    return found


def _assigned(assignment: bytes) -> set[str]:
    """The topics in a classic member's assignment (ConsumerProtocolAssignment); empty during a rebalance."""
    if not assignment:
        return set()
    answer, topics = Reader(assignment), set()
    try:
        answer.short()
        for _ in range(answer.integer()):
            name = answer.take(answer.short()).decode("utf-8", "replace")
            topics.add(name)
            answer.take(4 * answer.integer())
    except ConnectionLost:
        return set()  # another protocol's assignment (Kafka Connect): not topics
    return topics


def read_consumer_members(answer: Reader) -> dict[str, Members | int]:
    """Like :func:`read_classic_members`, for groups of the consumer protocol."""
    answer.integer()
    found: dict[str, Members | int] = {}
    for _ in range(answer.count()):
        error, _, name, _ = answer.short(), answer.text(), answer.text(), answer.text()
        answer.take(8)
        answer.text()
        total, topics = answer.count(), Counter[str]()
        for _ in range(total):
            for _ in range(3):  # member, instance, rack
                answer.text()
            answer.integer()
            answer.text()
            answer.text()
            answer.array(answer.text)
            answer.text()
            topics.update(topics_of(answer))
            topics_of(answer)  # the target assignment
            answer.tags()
        answer.integer()
        answer.tags()
        found[name] = error or Members(total, topics)
    return found


def topics_of(answer: Reader) -> set[str]:
    """The topics of an assignment, as the group protocols of brokers tell it."""
    topics = set()
    for _ in range(answer.count()):
        answer.take(16)
        topics.add(answer.text())
        answer.take(4 * answer.count())
        answer.tags()
    answer.tags()
    return topics


def offset_fetch_request(names: Sequence[str]) -> Request:
    """Asks for everything that these groups have committed."""
    groups = array(text(name) + b"\0" + END for name in names)
    return Request(OFFSET_FETCH, 8, groups + b"\0" + END)


def read_offset_fetch(answer: Reader) -> dict[str, Committed]:
    """Group → what it has committed."""
    answer.integer()
    found = {}
    for _ in range(answer.count()):
        name, errors = answer.text(), dict[tuple[str, int], int]()
        offsets = {}
        for _ in range(answer.count()):
            topic = answer.text()
            offsets[topic] = _partitions(answer, topic, errors)
            answer.tags()
        error = answer.short()
        answer.tags()
        found[name] = Committed(error, offsets, errors)
    return found


def _partitions(answer: Reader, topic: str, errors: dict[tuple[str, int], int]) -> dict[int, int]:
    """A topic's committed offsets. Most have no metadata: then their layout is fixed, and read at once."""
    offsets, data, size, unpack = {}, answer.data, _COMMITTED.size, _COMMITTED.unpack_from
    room = len(data) - size
    for _ in range(answer.count()):
        at = answer.at
        plain = False
        if at <= room:
            partition, offset, _, metadata, error, tags = unpack(data, at)
            plain = metadata in _EMPTY and tags == 0
        if plain:
            answer.at = at + size
        else:
            partition, offset, _ = answer.integer(), answer.long(), answer.integer()
            answer.text()
            error = answer.short()
            answer.tags()
        offsets[partition] = offset
        if error:
            errors[topic, partition] = error
    return offsets
