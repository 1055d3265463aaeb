"""Frames are found however the bytes come in pieces; everything else reaches the library whole and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.nats.wire import Frame, Frames


class Library:
    """A parser that keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []
        self.state = "library's own"

    async def parse(self, data: bytes = b"") -> None:
        self.given.append(data)

    def reset(self) -> None:
        self.given.clear()


def written(frame: Frame, sid: int) -> bytes:
    """``frame`` as a server sends it."""
    reply = frame.reply + b" " if frame.reply else b""
    size = len(frame.headers) + len(frame.data)
    head = b"%s %d %s" % (frame.subject, sid, reply)
    if frame.headers:
        return b"HMSG %s%d %d\r\n%s%s\r\n" % (head, len(frame.headers), size, frame.headers, frame.data)
    return b"MSG %s%d\r\n%s\r\n" % (head, size, frame.data)


names = st.sampled_from([b"a", b"tap.ORDERS.x", b"$JS.ACK.S.c.1.2.3.4.5"])
ours = st.builds(
    Frame, names, names | st.just(b""), st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]), st.binary(max_size=30)
)
lines = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'no'\r\n", b'INFO {"a":1}\r\n'])


@given(
    st.lists(st.tuples(ours, st.sampled_from([7, 70, 1])) | lines, max_size=12),
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
)
async def test_whatever_the_pieces_every_frame_is_taken_once_and_the_rest_is_handed_on(
    sent: list[tuple[Frame, int] | bytes], sizes: list[int]
) -> None:
    library, taken = Library(), []
    frames = Frames(library, 7, taken.extend)
    parts = [one if isinstance(one, bytes) else written(*one) for one in sent]
    stream, at, turn = b"".join(parts), 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        await frames.parse(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert taken == [one[0] for one in sent if isinstance(one, tuple) and one[1] == 7]
    mine = [isinstance(one, tuple) and one[1] == 7 for one in sent]
    assert library.given == [part for part, own in zip(parts, mine, strict=True) if not own]


async def test_another_subscription_may_take_the_place_of_the_first() -> None:
    library, first, second = Library(), [], []
    frames = Frames(library, 7, first.extend)
    whole = written(Frame(b"a", b"", b"", b"one"), 7) + written(Frame(b"a", b"", b"", b"two"), 8)
    await frames.parse(whole[:-5])
    frames.divert(8, second.extend)
    await frames.parse(whole[-5:])
    assert [frame.data for frame in first] == [b"one"]
    assert [frame.data for frame in second] == [b"two"]


async def test_what_else_the_library_asks_of_its_parser_is_its_own_parsers() -> None:
    library = Library()
    frames = Frames(library, 7, lambda frames: None)
    await frames.parse(b"MSG a 7 100\r\nhalf")
    frames.reset()
    await frames.parse(b"PING\r\n")
    assert library.given == [b"PING\r\n"]
    assert frames.state == "library's own"
