"""The protocol's pieces: varints, record batches, SCRAM."""

from __future__ import annotations

import base64
import socket
import struct
import threading
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.errors import ConnectionLost
from brokers.kafka.link import Link
from brokers.kafka.sasl import Refused, talk
from brokers.kafka.wire.cluster import Node
from brokers.kafka.wire.codec import Reader, text, varint
from collectors.kafka.cluster import Cluster
from collectors.kafka.offset_timestamps import OffsetTimestamps, Search
from collectors.kafka.reading import Head
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.wire.offsets import Fetched
from collectors.kafka.wire.records import Stamp, stamp_at

_HEADER = struct.Struct(">qiibIhiqqqhii")


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def batch(
    base: int, times: list[int], *, attributes: int = 0, gaps: list[int] | None = None, padding: int = 0
) -> bytes:
    """An uncompressed record batch; ``gaps``: the records' offsets relative to ``base`` (compaction leaves holes);
    ``padding``: bytes behind the records."""
    places = gaps or list(range(len(times)))
    body = b""
    for place, time in zip(places, times, strict=True):
        record = b"\0" + zigzag(time - times[0]) + zigzag(place) + zigzag(-1) + zigzag(3) + b"abc" + zigzag(0)
        body += zigzag(len(record)) + record
    body += bytes(padding)
    length = _HEADER.size - 12 + len(body)
    head = (base, length, 0, 2, 0, attributes, places[-1], times[0], max(times), -1, -1, -1, len(times))
    return _HEADER.pack(*head) + body


@given(st.integers(0, 2**63 - 1))
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    assert Reader(varint(value)).varint() == value


@given(st.text())
def test_a_string_is_read_as_it_was_written(value: str) -> None:
    reader = Reader(text(value))
    assert reader.text() == value and reader.at == len(reader.data)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_in_place_of_records_are_no_crash(data: bytes, offset: int) -> None:
    with suppress(ConnectionLost):
        stamp_at(data, offset)


@given(
    st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 20),
)
def test_the_first_record_at_or_after_an_offset_is_found(batches: list[list[int]], offset: int) -> None:
    data, base, flat = b"", 0, list[int]()
    for times in batches:
        data += batch(base, times)
        base += len(times)
        flat += times
    expected = Stamp(offset, flat[offset], False) if offset < len(flat) else offset
    assert stamp_at(data, offset) == expected


def test_holes_that_compaction_left_are_passed_over() -> None:
    data = batch(10, [1000, 2000], gaps=[2, 7])
    assert stamp_at(data, 10) == Stamp(12, 1000, False)
    assert stamp_at(data, 13) == Stamp(17, 2000, False)
    assert stamp_at(data, 18) == 18


def test_control_batches_are_no_messages() -> None:
    marker = batch(5, [9000], attributes=0x30)
    assert stamp_at(marker, 5) == 6
    assert stamp_at(marker + batch(6, [9500]), 5) == Stamp(6, 9500, False)


def test_append_time_is_the_batchs() -> None:
    assert stamp_at(batch(5, [1000, 7000], attributes=0x08), 5) == Stamp(5, 7000, True)


def test_a_batch_that_is_not_whole_asks_for_more() -> None:
    data = batch(0, [1000] * 50)
    assert stamp_at(data[:-1], 7) == 7


def test_sizes_that_lead_back_and_numbers_without_end_are_no_records() -> None:
    for body in (zigzag(-6) + bytes(24), b"\xff" * 1000):
        head = (0, _HEADER.size - 12 + len(body), 0, 2, 0, 0, 5, 0, 0, -1, -1, -1, 2**31 - 1)
        with pytest.raises(ConnectionLost, match="cut off"):
            stamp_at(_HEADER.pack(*head) + body, 5)


def test_a_batch_that_cannot_be_unpacked_is_unknown_and_no_fault_of_the_broker() -> None:
    broken = batch(0, [1000], attributes=0x01)  # says gzip and is none
    heads = OffsetTimestamps(Cluster(KafkaBroker()), 1 << 20)
    said = heads._judge(Search(Head("orders", 0, 0), 0, 4096, 1), Fetched(0, 1, -1, 0, broken))
    assert isinstance(said, str) and "cannot be unpacked" in said


def test_a_large_batch_is_asked_for_as_large_as_it_is_and_not_for_ever() -> None:
    heads = OffsetTimestamps(Cluster(KafkaBroker()), 1 << 20)

    def judge(data: bytes, room: int) -> Any:
        return heads._judge(Search(Head("orders", 0, 0), 0, room, 1000), Fetched(0, 1000, -1, 0, data))

    large, small = batch(0, [1000] * 900), batch(0, [1000])
    assert 5000 < len(large) < 16_000
    again = judge(large[:4096], 4096)
    assert len(large) <= again.room <= 2 * len(large)
    assert judge(large, again.room) == Stamp(0, 1000, False)
    assert len(large) <= heads._rooms.of(("orders", 0)) <= again.room
    for _ in range(60):
        assert judge(small, again.room) == Stamp(0, 1000, False)
    assert heads._rooms.of(("orders", 0)) == 512
    assert judge(b"", 4096).room == 4 * 4096  # there was no room for this partition in the answer


def test_a_length_that_is_promised_takes_no_memory() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x50"  # of TLS, which reads like an answer of 350 MB
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(1000)
                taken.sendall(alert)

        thread = threading.Thread(target=answer)
        thread.start()
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionLost, match="for TLS"):
                Link(KafkaBroker(), Node(*server.getsockname()), None)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
            thread.join()


# The example of RFC 7677, section 3.
_NONCE, _SERVER = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
_FIRST = f"r={_NONCE}{_SERVER},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def test_scram_says_what_the_standards_example_says() -> None:
    conversation = talk("SCRAM-SHA-256", "user", "pencil", _NONCE)
    assert next(conversation) == f"n,,n=user,r={_NONCE}".encode()
    final = conversation.send(_FIRST)
    assert final == f"c=biws,r={_NONCE}{_SERVER},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        conversation.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "first", [b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", _FIRST.replace(b"4096", b"1"), b"e=other-error"]
)
def test_a_challenge_that_is_not_ours_is_refused(first: bytes) -> None:
    conversation = talk("SCRAM-SHA-256", "user", "pencil", _NONCE)
    next(conversation)
    with pytest.raises(Refused):
        conversation.send(first)


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    conversation = talk("SCRAM-SHA-512", "user", "pencil", _NONCE)
    next(conversation)
    conversation.send(_FIRST)
    with pytest.raises(Refused):
        conversation.send(b"v=" + base64.b64encode(bytes(64)))
