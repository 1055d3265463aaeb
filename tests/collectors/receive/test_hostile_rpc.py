"""What strangers send, and keep back, at the receiver's gRPC port: it holds little, and keeps nobody out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from lake.web.calls import Calls, Reading, TooManyCalls
from lake.web.connections import Connection, Connections
from lake.web.policy import Limits
from tests.collectors.receive.support import Receiving, settings, some, start
from tests.support.http2 import HalfSender
from tests.support.waiting import PATIENCE, wait_until

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
BEARER = {"authorization": "Bearer s3cret"}
MIB = 1 << 20
MESSAGE = 4 * MIB
#: Eight messages that are read, 32 that wait to be committed, and windows of the calls that wait.
MOST_HELD = 100 * MIB


class Guarded:
    """A receiver in a process of its own, that asks for a token and is patient with half messages."""

    def __init__(self, root: Path) -> None:
        self.settings = settings(
            token={"env": "RECEIVE_TOKEN"},
            max_request_bytes=MESSAGE,
            max_pending_bytes=2 * MESSAGE,
            max_connections=100,
            body_seconds=120,
            header_seconds=120,
            idle_seconds=120,
        )
        self.at = Receiving(root, self.settings.receive.grpc_port, self.settings.receive.http_port)
        self._process = start(self.settings, root)
        self._sent = 0

    @property
    def resident(self) -> int:
        """Bytes of memory that it takes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def takes(self) -> bool:
        """Whether a proper call is answered, on a connection of its own."""
        self._sent += 1
        body = some(self._sent, 1).SerializeToString()
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.at.grpc_port}", options=options) as channel:
            channel.unary_unary(EXPORT)(body, timeout=30 * PATIENCE, metadata=list(BEARER.items()))
        return True

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A receiver that all tests here share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECEIVE_TOKEN", "s3cret")
        one = Guarded(tmp_path_factory.mktemp("hostile") / "lake")
    try:
        wait_until(one.at.answers, "the receiver to listen", seconds=60)
        yield one
    finally:
        one.end()


def pushed(senders: list[HalfSender], streams: int, headers: dict[str, str]) -> int:
    """All but the end of a message on each of ``streams`` calls of each connection, as far as it is taken: bytes."""
    left = {}
    for sender in senders:
        sender.greet()
        sender.hear(1.0)
        for _ in range(streams):
            stream = sender.call(EXPORT, **headers)
            sender.begin(stream, MESSAGE - 100)
            left[sender, stream] = MESSAGE - 1_000
    sent, still = 0, 0
    while still < 20:
        before = sent
        for (sender, stream), rest in left.items():
            taken = sender.more(stream, min(rest, 64 * 1024))
            left[sender, stream] -= taken
            sent += taken
        still = still + 1 if sent == before else 0
        if sent == before:
            time.sleep(0.01)
        elif sent > 1_000 * MIB:
            break
    return sent


@pytest.mark.parametrize(
    ("connections", "streams", "headers"),
    [(60, 1, {}), (60, 1, BEARER), (1, 900, BEARER)],
    ids=["without the token", "with it", "many calls of one connection"],
)
def test_half_messages_hold_little_and_keep_nobody_out(
    guarded: Guarded, connections: int, streams: int, headers: dict[str, str]
) -> None:
    assert guarded.takes()
    before = guarded.resident
    with ExitStack() as stack:
        senders = [HalfSender(guarded.at.grpc_port) for _ in range(connections)]
        for sender in senders:
            stack.callback(sender.close)
        pushed(senders, streams, headers)
        assert guarded.resident - before < MOST_HELD
        assert guarded.takes()
        assert guarded.resident - before < MOST_HELD


def test_connections_that_say_nothing_and_calls_that_never_begin_keep_nobody_out(guarded: Guarded) -> None:
    assert guarded.takes()
    before = guarded.resident
    with ExitStack() as stack:
        for number in range(2_000):
            try:
                sender = HalfSender(guarded.at.grpc_port)
            except OSError:
                break  # this process may have no more
            stack.callback(sender.close)
            if number % 3:
                sender.greet()
            if number % 3 == 2:
                sender.call(EXPORT)
            if number % 500 == 0:
                assert guarded.takes()
        assert guarded.takes()
        assert guarded.resident - before < MOST_HELD


def test_no_peer_may_have_all_calls_and_a_place_comes_back() -> None:
    there = Connections(Limits(), lambda: 0.0)
    one, other = (there.enter(peer) for peer in ("10.0.0.1", "10.0.0.2"))
    assert one is not None and other is not None
    calls = Calls(4)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(calls.place(one))
        with pytest.raises(TooManyCalls), calls.place(one):
            pass
        stack.enter_context(calls.place(other))
    with calls.place(one), calls.place(one):
        pass


def test_while_calls_are_answered_their_connection_is_kept_and_no_longer() -> None:
    there = Connections(Limits(connections=1, reserved_connections=0), lambda: 0.0)
    one = there.enter("10.0.0.1")
    assert one is not None
    calls = Calls(4)
    with calls.answering(one):
        with calls.answering(one):
            pass
        assert there.enter("10.0.0.2") is None
    assert there.enter("10.0.0.2") is not None


async def test_a_place_to_read_goes_to_the_connection_that_holds_the_fewest() -> None:
    there = Connections(Limits(), lambda: 0.0)
    greedy, modest = there.enter("10.0.0.1"), there.enter("10.0.0.2")
    assert greedy is not None and modest is not None
    reading, order = Reading(2), list[str]()
    release = asyncio.Event()

    async def read(connection: Connection, name: str, *, stalls: bool) -> None:
        try:
            async with reading.turn(connection, 60.0):
                order.append(name)
                if stalls:
                    await release.wait()
        except TimeoutError:
            order.append(f"{name} gave up its place")

    tasks = [asyncio.create_task(read(greedy, f"half {number}", stalls=True)) for number in range(2)]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(read(greedy, f"half {number}", stalls=True)) for number in (2, 3)]
    tasks.append(asyncio.create_task(read(modest, "whole", stalls=False)))
    await tasks[-1]
    await asyncio.sleep(0)
    assert order[:4] == ["half 0", "half 1", "whole", "half 0 gave up its place"]
    release.set()
    await asyncio.gather(*tasks)
    assert len(reading) == 0


async def test_places_to_read_are_shared_out_between_peers_however_many_connections_each_has() -> None:
    there = Connections(Limits(), lambda: 0.0)
    of = {"greedy": "10.0.0.1", "modest": "10.0.0.2", "slow": "10.0.0.3"}
    reading, order, release = Reading(3), list[str](), asyncio.Event()

    async def read(peer: str, number: int, *, stalls: bool = True) -> None:
        connection = there.enter(of[peer])
        assert connection is not None
        try:
            async with reading.turn(connection, 60.0):
                order.append(f"{peer} {number}")
                if stalls:
                    await release.wait()
        except TimeoutError:
            order.append(f"{peer} {number} gave up")

    tasks = [asyncio.create_task(read("slow", 0))]
    tasks += [asyncio.create_task(read("greedy", number)) for number in range(50)]
    await asyncio.sleep(0)
    assert order == ["slow 0", "greedy 0", "greedy 1"]
    last = asyncio.create_task(read("modest", 0, stalls=False))  # behind 48 connections, each without a place so far
    await last
    await asyncio.sleep(0)
    assert next(one for one in order[3:] if "greedy 0" not in one) == "modest 0"
    assert "slow 0 gave up" not in order
    release.set()
    await asyncio.gather(*tasks)
    assert "slow 0 gave up" not in order and len(reading) == 0


async def test_who_waits_for_a_place_too_long_is_told_and_leaves_nothing_behind() -> None:
    one = Connections(Limits(), lambda: 0.0).enter("10.0.0.1")
    assert one is not None
    reading = Reading(1)
    async with reading.turn(one, 60.0):
        with pytest.raises(TimeoutError):
            async with reading.turn(one, 0.01):
                raise AssertionError("there is no place")
        assert len(reading) == 1
    async with reading.turn(one, 60.0):
        assert len(reading) == 1
    assert len(reading) == 0


async def test_who_went_away_while_waiting_takes_no_place_from_others() -> None:
    one = Connections(Limits(), lambda: 0.0).enter("10.0.0.1")
    assert one is not None
    reading = Reading(1)

    async def read() -> bool:
        async with reading.turn(one, 60.0):
            return True

    async with reading.turn(one, 60.0):
        gone, waiting = asyncio.create_task(read()), asyncio.create_task(read())
        await asyncio.sleep(0)
        gone.cancel()
    assert await waiting and gone.cancelled() and len(reading) == 0
