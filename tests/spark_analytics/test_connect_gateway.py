"""The gate: who has no token holds no place, whatever he sends or keeps back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2

from lake.web.policy import Limits
from spark_analytics.connect import gateway as module
from spark_analytics.connect.gateway import MOST_CALLS, Gateway
from tests.security.plan_parts import SESSION
from tests.support.http2 import HalfSender
from tests.support.waiting import wait_until

TOKEN = "only-for-this-test"
SERVICE = "/spark.connect.SparkConnectService"
BEARER = [("authorization", f"Bearer {TOKEN}")]


@pytest.fixture
def port() -> Iterator[int]:
    """A gate behind which nobody is."""
    gateway = Gateway("127.0.0.1", 0, "127.0.0.1:1", (), token=TOKEN, upstream_token="inner")
    yield gateway.port
    gateway.close(0)


def released(channel: grpc.Channel) -> grpc.StatusCode:
    """What a client with the token is told: UNAVAILABLE, once it has come through to where nobody is."""
    request = base_pb2.ReleaseSessionRequest(session_id=str(uuid.uuid4())).SerializeToString()
    with pytest.raises(grpc.RpcError) as told:
        channel.unary_unary(f"{SERVICE}/ReleaseSession")(request, metadata=BEARER, timeout=60)
    code: grpc.StatusCode = told.value.code()
    return code


def test_calls_without_the_token_end_before_they_have_sent_anything_and_lock_nobody_out(port: int) -> None:
    done = threading.Event()

    def nothing() -> Iterator[bytes]:
        done.wait()
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in ("ExecutePlan", "AddArtifacts", "ReleaseSession"):
            ask = channel.stream_stream(f"{SERVICE}/{method}")
            hanging = [ask(nothing(), timeout=60) for _ in range(MOST_CALLS)]
            assert released(channel) is grpc.StatusCode.UNAVAILABLE
            assert {call.code() for call in hanging} == {grpc.StatusCode.UNAUTHENTICATED}
        done.set()


def test_connections_that_say_nothing_or_greet_and_call_lock_nobody_out_and_are_bounded_for_each_peer() -> None:
    limits = Limits(connections=40, unknown_peer_connections=10, reserved_connections=10)
    gateway = Gateway("127.0.0.1", 0, "127.0.0.1:1", (), token=TOKEN, upstream_token="inner", limits=limits)
    with ExitStack() as stack:
        stack.callback(gateway.close, 0)
        senders = []
        for number in range(60):
            sender = HalfSender(gateway.port, source="127.0.0.2")
            stack.callback(sender.close)
            senders.append(sender)
            if number % 3:
                sender.greet()
            if number % 3 == 2:
                sender.call(f"{SERVICE}/ExecutePlan")
        with grpc.insecure_channel(f"127.0.0.1:{gateway.port}") as channel:
            assert released(channel) is grpc.StatusCode.UNAVAILABLE
        wait_until(
            lambda: [sender.hear() for sender in senders] and sum(not sender.closed for sender in senders) <= 10,
            "no more than its places to be left to the peer",
        )


def test_a_message_is_not_read_before_the_token(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for metadata, code in (
            ([], grpc.StatusCode.UNAUTHENTICATED),
            ([("authorization", f"Bearer {TOKEN} ")], grpc.StatusCode.UNAUTHENTICATED),
            ([("authorization", TOKEN)], grpc.StatusCode.UNAUTHENTICATED),
            ([("authorization", "Bearer another"), *BEARER], grpc.StatusCode.UNAUTHENTICATED),
            ([*BEARER, *BEARER], grpc.StatusCode.UNAUTHENTICATED),
            (BEARER, grpc.StatusCode.PERMISSION_DENIED),
        ):
            with pytest.raises(grpc.RpcError) as told:
                channel.unary_unary(f"{SERVICE}/ExecutePlan")(b"\xff no message", metadata=metadata, timeout=60)
            assert told.value.code() is code


def test_the_places_of_clients_come_back_however_a_call_ends(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(MOST_CALLS + 1):
            with pytest.raises(grpc.RpcError) as told:
                channel.unary_unary(f"{SERVICE}/ExecutePlan")(b"\xff", metadata=BEARER, timeout=60)
            assert told.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert released(channel) is grpc.StatusCode.UNAVAILABLE


def test_half_messages_of_those_with_the_token_give_way_and_only_few_are_held(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_SECONDS", 1.0)
    monkeypatch.setattr("lake.web.calls._STALLED_SECONDS", 3600.0)  # else they would give way to each other
    with ExitStack() as stack:
        calls = []
        for _ in range(20):
            sender = HalfSender(port)
            stack.callback(sender.close)
            sender.greet()
            sender.hear(1.0)
            stream = sender.call(f"{SERVICE}/ExecutePlan", authorization=f"Bearer {TOKEN}")
            sender.begin(stream, 1 << 20)
            calls.append((sender, stream))
        taken = sum(sender.more(stream, 1 << 19) > 1 << 17 for sender, stream in calls)
        assert taken <= module._MOST_READ  # of the others, gRPC's windows
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            wait_until(lambda: released(channel) is grpc.StatusCode.UNAVAILABLE, "a place to be free")
            wait_until(
                lambda: [sender.hear() for sender, _ in calls] and all(one in sender.ended for sender, one in calls),
                "the half messages to be given up",
            )


def test_half_open_calls_of_one_peer_with_the_token_keep_no_other_peer_out(port: int) -> None:
    with ExitStack() as stack:
        senders = [HalfSender(port, source="127.0.0.2") for _ in range(8)]
        for sender in senders:
            stack.callback(sender.close)
            sender.greet()
            sender.hear(1.0)
            for _ in range(MOST_CALLS // 4):
                stream = sender.call(f"{SERVICE}/ExecutePlan", authorization=f"Bearer {TOKEN}")
                sender.begin(stream, 1 << 20)
            sender.hear(1.0)
        wait_until(
            lambda: [sender.hear() for sender in senders] and any(sender.ended for sender in senders),
            "more calls than the peer may have to be refused",
        )
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert released(channel) is grpc.StatusCode.UNAVAILABLE


def test_calls_that_are_not_known_are_refused_with_the_token_too(port: int) -> None:
    request = base_pb2.ReleaseSessionRequest(session_id=SESSION).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as told:
        channel.unary_unary(f"{SERVICE}/AnythingElse")(request, metadata=BEARER, timeout=60)
    assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED
