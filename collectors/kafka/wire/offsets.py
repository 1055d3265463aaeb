"""Where partitions begin and end: by ListOffsets, and by Fetch, which brings the record at an offset as well."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from brokers.kafka.wire.codec import END, Reader, Request, array, cut_off, text, varint

LIST_OFFSETS, FETCH = 2, 1
LATEST, EARLIEST = -1, -2

_ASK_OFFSET = struct.Struct(">iiqB")
_OFFSET = struct.Struct(">ihqqiB")
_ASK_RECORD = struct.Struct(">iiqiqiB")
_FETCHED = struct.Struct(">ihqqq")
_NONE = (b"\0", b"\1")  # a null and an empty array
_FETCH_HEAD = struct.Struct(">iiiibii")


class Offset(NamedTuple):
    """A partition's first or next offset; ``error`` 0 if it is known."""

    error: int
    offset: int


class Fetched(NamedTuple):
    """What a leader says of a partition: its end (high watermark), the last stable offset (−1 unless asked for), the
    log's first offset, and the bytes of the record batches from the offset that was asked for."""

    error: int
    end: int
    stable: int
    start: int
    records: bytes


class Want(NamedTuple):
    """An offset of a partition at which to fetch; ``room`` in bytes: 0 brings no records."""

    partition: int
    offset: int
    room: int


def list_offsets_request(topics: Mapping[str, Iterable[int]], which: int, *, stable: bool = False) -> Request:
    """Asks for the first (EARLIEST) or the next (LATEST) offset; ``stable``: the last stable one for the next."""
    asked = array(
        text(topic) + array(_ASK_OFFSET.pack(partition, -1, which, 0) for partition in partitions) + END
        for topic, partitions in topics.items()
    )
    return Request(LIST_OFFSETS, 6, struct.pack(">ib", -1, int(stable)) + asked + END)


def read_list_offsets(answer: Reader) -> dict[str, dict[int, Offset]]:
    """Topic → partition → offset."""
    answer.integer()
    found = {}
    for _ in range(answer.count()):
        topic, count = answer.text(), answer.count()
        raw = answer.take(count * _OFFSET.size)  # a fixed layout: no tagged field is defined for this version
        found[topic] = {
            partition: Offset(error, offset) for partition, error, _, offset, _, _ in _OFFSET.iter_unpack(raw)
        }
        answer.tags()
    return found


def fetch_request(topics: Mapping[str, Iterable[Want]], *, room: int, stable: bool = False) -> Request:
    """Asks for the records at offsets, at most ``room`` bytes of them, without waiting and without a session.

    Each partition may be asked for once. The first batch of the first partition comes whatever its size.
    """
    head = _FETCH_HEAD.pack(-1, 0, 0, room, int(stable), 0, -1)
    pack = _ASK_RECORD.pack
    asked = array(
        text(topic) + array(pack(want.partition, -1, want.offset, -1, -1, want.room, 0) for want in wants) + END
        for topic, wants in topics.items()
    )
    return Request(FETCH, 12, head + asked + varint(1) + text("") + END)


def read_fetch(answer: Reader) -> dict[str, dict[int, Fetched]]:
    """Topic → partition → what was told."""
    answer.integer()
    answer.short()
    answer.integer()
    found = {}
    for _ in range(answer.count()):
        topic = answer.text()
        found[topic] = dict(_fetched(answer) for _ in range(answer.count()))
        answer.tags()
    return found


def _fetched(answer: Reader) -> tuple[int, Fetched]:
    try:
        partition, error, end, stable, start = _FETCHED.unpack_from(answer.data, answer.at)
    except struct.error:
        raise cut_off() from None
    answer.at += _FETCHED.size
    if answer.data[answer.at : answer.at + 1] in _NONE:  # most have no aborted transactions
        answer.at += 1
    else:
        answer.take(17 * answer.count())  # producer, first offset, no tagged fields
    answer.at += 4  # the replica to prefer
    records = answer.blob()
    if answer.data[answer.at : answer.at + 1] == END:
        answer.at += 1
    else:
        answer.tags()
    return partition, Fetched(error, end, stable, start, records)
