"""The wire format: whatever the server may say is read whole, however it is cut on its way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.redis.resp import NotRedis, Parser, Refusal, checked, pack
from tests.support.redis import RedisServer

ANSWERS = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40), lambda inner: st.lists(inner, max_size=4)
)


def written(answer: Any) -> bytes:
    """``answer`` as a server writes it."""
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if isinstance(answer, bytes):
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    return b"*%d\r\n" % len(answer) + b"".join(map(written, answer))


@given(st.lists(ANSWERS, max_size=6), st.lists(st.integers(1, 30), max_size=40))
def test_answers_are_read_whole_wherever_they_are_cut(answers: list[Any], cuts: list[int]) -> None:
    data, parser, read = b"".join(map(written, answers)), Parser(), []
    for size in [*cuts, len(data)]:
        read += parser.feed(data[:size])
        data = data[size:]
    assert read == answers
    assert parser.held == 0


@given(st.binary(min_size=1, max_size=60))
def test_bytes_that_are_no_answer_end_in_one_kind_of_error(data: bytes) -> None:
    try:
        Parser().feed(data)
    except NotRedis:
        return


def test_lists_within_lists_without_end_are_no_answer() -> None:
    with pytest.raises(NotRedis):
        Parser().feed(b"*1\r\n" * 100_000)


def test_statuses_and_errors_are_told_apart() -> None:
    status, refusal, nothing = Parser().feed(b"+OK\r\n-WRONGTYPE Operation against a key\r\n*-1\r\n")
    assert (status, nothing) == (b"OK", None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "WRONGTYPE"
    with pytest.raises(Refusal):
        checked([1, refusal])


def test_commands_arrive_at_a_real_server_as_they_were_meant(redis_server: RedisServer) -> None:
    import socket

    value = b"\x00\r\n$5\r\n\xff"
    with socket.create_connection(("127.0.0.1", redis_server.port), timeout=5) as connection:
        connection.sendall(pack([("SET", "käse", value), ("GET", "käse"), ("APPEND", b"k\xc3\xa4se", 12)]))
        parser, answers = Parser(), []
        while len(answers) < 3:
            answers += parser.feed(connection.recv(7))
    assert answers == [b"OK", value, len(value) + 2]
