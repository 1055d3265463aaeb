"""Share groups (KIP-932, KIP-1226) and streams groups (KIP-1071): their members, and how far share groups are.

What a streams group has committed is asked for as of every other group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from brokers.kafka.wire.codec import END, Reader, Request, array, text
from collectors.kafka.wire.groups import Committed, Members, topics_of

SHARE_GROUP_DESCRIBE, STREAMS_GROUP_DESCRIBE, DESCRIBE_SHARE_GROUP_OFFSETS = 77, 89, 90
_NULL = 0xFF  # in place of a structure


def describe_share_request(names: Sequence[str]) -> Request:
    """Asks for the members of share groups; version 1, of Kafka 4.1."""
    return Request(SHARE_GROUP_DESCRIBE, 1, array(text(name) for name in names) + b"\0" + END)


def describe_streams_request(names: Sequence[str]) -> Request:
    """Asks for the members of streams groups, and for the topology that says what their tasks read."""
    return Request(STREAMS_GROUP_DESCRIBE, 0, array(text(name) for name in names) + b"\0" + END)


def share_offsets_request(names: Sequence[str], newest: int) -> Request:
    """Asks where share groups begin on every partition; version 1 (Kafka 4.2) tells what waits there, too."""
    groups = array(text(name) + b"\0" + END for name in names)
    return Request(DESCRIBE_SHARE_GROUP_OFFSETS, 1 if newest >= 1 else 0, groups + END)


def read_share_members(answer: Reader) -> dict[str, Members | int]:
    """Group → members, or the error that says why they are not told."""
    answer.integer()
    found: dict[str, Members | int] = {}
    for _ in range(answer.count()):
        error, name = _head(answer)
        answer.text()  # assignor
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


def read_streams_members(answer: Reader) -> dict[str, Members | int]:
    """Like :func:`read_share_members`: a member is assigned the topics that its active tasks read."""
    answer.integer()
    found: dict[str, Members | int] = {}
    for _ in range(answer.count()):
        error, name = _head(answer)
        sources = _sources(answer)
        total, topics = answer.count(), Counter[str]()
        for _ in range(total):
            topics.update({topic for task in _streams_member(answer) for topic in sources.get(task, ())})
        answer.integer()
        answer.tags()
        found[name] = error or Members(total, topics)
    return found


def read_share_offsets(answer: Reader, version: int) -> dict[str, Committed]:
    """Group → the first offset on each partition that is not done with (−1: none yet), and what waits from there on."""
    answer.integer()
    found = {}
    for _ in range(answer.count()):
        name = answer.text()
        offsets, errors, lags = dict[str, dict[int, int]](), dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        for _ in range(answer.count()):
            topic = answer.text()
            answer.take(16)
            told = offsets[topic] = {}
            for _ in range(answer.count()):
                partition, start, _ = answer.integer(), answer.long(), answer.integer()
                lag = answer.long() if version >= 1 else -1
                error = answer.short()
                answer.text()
                answer.tags()
                told[partition] = max(-1, start)
                if error:
                    errors[topic, partition] = error
                elif lag >= 0:
                    lags[topic, partition] = lag
            answer.tags()
        error = answer.short()
        answer.text()
        answer.tags()
        found[name] = Committed(error, offsets, errors, lags)
    return found


def _head(answer: Reader) -> tuple[int, str]:
    """A described group's error and name."""
    error, _, name, _ = answer.short(), answer.text(), answer.text(), answer.text()
    answer.take(8)  # epochs of group and assignment
    return error, name


def _sources(answer: Reader) -> dict[str, list[str]]:
    """Subtopology → the topics that its tasks read, those that repartition among them."""
    if answer.byte() == _NULL:
        return {}
    found = {}
    answer.integer()
    for _ in range(answer.count()):
        name, topics = answer.text(), answer.array(answer.text)
        answer.array(answer.text)  # what it writes to
        _topics(answer)  # changelogs of its state
        found[name] = topics + _topics(answer)
        answer.tags()
    answer.tags()
    return found


def _topics(answer: Reader) -> list[str]:
    """The names of topics that are told with their configuration."""
    found = []
    for _ in range(answer.count()):
        found.append(answer.text())
        answer.take(6)
        _pairs(answer)
        answer.tags()
    return found


def _pairs(answer: Reader) -> None:
    for _ in range(answer.count()):
        answer.text()
        answer.text()
        answer.tags()


def _streams_member(answer: Reader) -> list[str]:
    """The subtopologies of a member's active tasks."""
    answer.text()
    answer.integer()
    for _ in range(4):  # instance, rack, client, host
        answer.text()
    answer.integer()
    answer.text()
    if answer.byte() != _NULL:  # where it answers interactive queries
        answer.text()
        answer.short()
        answer.tags()
    _pairs(answer)
    for _ in range(2):  # how far its changelogs are, and where they end
        for _ in range(answer.count()):
            answer.text()
            answer.take(12)
            answer.tags()
    active = _tasks(answer)
    _tasks(answer)  # the target assignment
    answer.byte()
    answer.tags()
    return active


def _tasks(answer: Reader) -> list[str]:
    """The subtopologies of an assignment's active tasks."""
    active, *_ = [_task_names(answer) for _ in range(3)]  # then those on standby, and those that warm up
    answer.tags()
    return active


def _task_names(answer: Reader) -> list[str]:
    found = []
    for _ in range(answer.count()):
        found.append(answer.text())
        answer.take(4 * answer.count())
        answer.tags()
    return found
