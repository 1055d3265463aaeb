"""The time of one record out of record batches (magic 2), without reading keys and values."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

import pyarrow as pa

from brokers.errors import ConnectionLost
from brokers.kafka.wire.codec import Reader

_HEADER = struct.Struct(">qiibIhiqqqhii")
_COMPRESSION, _APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20
_XERIAL = b"\x82SNAPPY\x00"
#: The most that a compressed batch may become: brokers take messages of a megabyte unless told otherwise.
_LARGEST = 64 << 20


class Stamp(NamedTuple):
    """When the first message at or after an offset was written: ``offset`` is where it stands, ``time`` is in
    milliseconds since 1970, on the broker's clock if ``by_broker`` (LogAppendTime), else on the producer's."""

    offset: int
    time: int
    by_broker: bool


def stamp_at(data: bytes, offset: int) -> Stamp | int:
    """The first message at or after ``offset``; where the bytes hold none, the offset from which to go on reading.

    That is ``offset`` itself if not even one whole batch is there: then more bytes are needed. Control records, which
    end transactions, are no messages.
    """
    at, size = 0, _HEADER.size
    while len(data) - at >= size:
        (base, length, _, magic, _, attributes, last, first_time, max_time, *_, count) = _HEADER.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data) or magic != 2 or length < size - 12:
            break
        if base + last >= offset:
            if not attributes & _CONTROL:
                codec = attributes & _COMPRESSION
                if codec:
                    body = decompressed(data[at + size : end], codec)
                    found = _within(body, 0, len(body), base, first_time, count, offset)
                else:
                    found = _within(data, at + size, end, base, first_time, count, offset)
                if found is not None:
                    by_broker = bool(attributes & _APPEND_TIME)
                    return Stamp(found[0], max_time if by_broker else found[1], by_broker)
            offset = base + last + 1
        at = end
    return offset


def _within(
    records: bytes, at: int, end: int, base: int, first: int, count: int, offset: int
) -> tuple[int, int] | None:
    """Offset and time of the first of ``count`` records at or after ``offset``. Reads three varints of each record."""
    try:
        for _ in range(count):
            size, at = _signed(records, at)
            if size < 0:
                raise IndexError
            following = at + size
            time, at = _signed(records, at + 1)
            place, _ = _signed(records, at)
            if base + place >= offset:
                return base + place, first + time
            at = following
            if at > end:
                break
    except IndexError:
        raise ConnectionLost("a record batch is cut off") from None
    return None


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint at ``at``, and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:  # most are small
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise IndexError
    return (value >> 1) ^ -(value & 1), at


def decompressed(body: bytes, codec: int) -> bytes:
    """A batch's records, unpacked by ``codec`` (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd); ConnectionLost if broken."""
    if codec == 0:
        return body
    try:
        if codec == 2:
            return _snappy(body)
        name = {1: "gzip", 3: "lz4", 4: "zstd"}[codec]
        with pa.CompressedInputStream(io.BytesIO(body), name) as stream:
            return bytes(stream.read(_LARGEST))
    except (KeyError, OSError, pa.ArrowException, struct.error) as error:
        raise ConnectionLost(f"a record batch cannot be unpacked: {error}") from None


def _snappy(body: bytes) -> bytes:
    """Raw snappy, or Java's framing of it: a header of 16 bytes, then blocks with their lengths."""
    if not body.startswith(_XERIAL):
        return _snappy_block(body)
    out, at = [], 16
    while at + 4 <= len(body):
        (length,) = struct.unpack_from(">i", body, at)
        out.append(_snappy_block(body[at + 4 : at + 4 + length]))
        at += 4 + length
    return b"".join(out)


def _snappy_block(block: bytes) -> bytes:
    size = Reader(block).varint()
    if size > _LARGEST:
        raise OSError("too large")
    return bytes(pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True))
