"""A real server behind a proxy that makes chosen requests go wrong: one queue's trouble stays its own."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.sqs import client
from brokers.sqs.client import Channel
from brokers.sqs.credentials import find
from collectors.samples import was_read
from collectors.sqs import source as sources
from collectors.sqs.pace import Pace
from collectors.sqs.sweep import Read, Sweep
from tests.collectors.sqs.support import action, broker, by_queue, error, on, opened, read_once, reading
from tests.support.elasticmq import ElasticMq
from tests.support.faulty import Changed, Cut, Fault, FaultyHttp, Hang, HangUp, Reply, Request
from tests.support.ports import free_ports


@pytest.fixture
def queues(elasticmq: ElasticMq) -> list[str]:
    names = [f"faults-{index}" for index in range(6)]
    for name in names:
        elasticmq.make(name)
    return names


def listing(request: Request) -> bool:
    return action(request) == "ListQueues"


def any_reading(request: Request) -> bool:
    return action(request) == "GetQueueAttributes"


async def test_a_listing_in_pages_is_followed_to_its_end(elasticmq: ElasticMq, queues: list[str]) -> None:
    def paged(request: Request) -> Fault:
        if not listing(request):
            return None
        start = int(json.loads(request.body).get("NextToken", "0"))

        def cut(reply: Reply) -> Reply:
            found = sorted(json.loads(reply.body)["QueueUrls"])
            page = {"QueueUrls": found[start : start + 4]}
            page |= {"NextToken": str(start + 4)} if start + 4 < len(found) else {}
            return Reply(200, json.dumps(page).encode())

        return Changed(cut)

    with FaultyHttp(elasticmq.url, paged) as proxy:
        assert set(await read_once(broker(proxy.url, "faults-"))) == set(queues)
        assert sum(map(listing, proxy.seen)) == 4  # two pages when it opens, two when it reads


@pytest.mark.parametrize(
    "fault", [error("RequestThrottled"), error("Whatever", 429), error("InternalError", 500), Cut()]
)
async def test_a_passing_fault_is_tried_again(elasticmq: ElasticMq, queues: list[str], fault: Fault) -> None:
    with FaultyHttp(elasticmq.url, on(any_reading, fault, times=2)) as proxy:
        samples = await read_once(broker(proxy.url, "faults-"))
        assert set(samples) == set(queues) and all(map(was_read, samples.values()))


async def test_throttled_requests_are_made_more_slowly(elasticmq: ElasticMq, queues: list[str]) -> None:
    with FaultyHttp(elasticmq.url, on(any_reading, error("ThrottlingException"), times=1)) as proxy:
        service, pace = client.sqs(broker(proxy.url)), Pace()
        channel = Channel(service, find(broker(proxy.url)))
        sweep = Sweep(map(elasticmq.address, queues), pace, patience=9)
        await asyncio.to_thread(sweep.work, channel)
        channel.close()
        assert all(isinstance(outcome, Read) for outcome in sweep.outcomes.values()) and len(sweep.outcomes) == 6
        assert pace.rate(time.monotonic()) is not None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (error("RequestThrottled"), "RequestThrottled"),
        (error("ServiceUnavailable", 503), "ServiceUnavailable"),
        (error("AccessDenied", 403), "AccessDenied"),
        (Reply(200, b"<html>sign in</html>"), "the answer is not of the JSON protocol"),
        (Reply(200, b'{"Attributes": {}}'), "the answer holds no attributes of a queue"),
        (Reply(200, b'{"Attributes": ["ApproximateNumberOfMessages"]}'), "the answer holds no attributes of a queue"),
        (Reply(302, b"", {"Location": "http://elsewhere/"}), "HTTP status 302"),
        (Cut(), "the answer is cut off, or too long"),
    ],
)
async def test_a_queue_that_cannot_be_read_is_unknown_and_the_others_are_read(
    elasticmq: ElasticMq, queues: list[str], fault: Fault, reason: str
) -> None:
    with FaultyHttp(elasticmq.url, on(reading("faults-3"), fault)) as proxy:
        samples = await read_once(broker(proxy.url, "faults-"))
    assert set(samples) == set(queues)
    assert [name for name, sample in samples.items() if not was_read(sample)] == ["faults-3"]
    assert samples["faults-3"].depth is None
    assert samples["faults-3"].unavailable["depth"] == reason


async def test_a_queue_that_hangs_delays_no_other(elasticmq: ElasticMq, queues: list[str]) -> None:
    with FaultyHttp(elasticmq.url, on(reading("faults-0"), Hang())) as proxy:
        settings = broker(proxy.url, "faults-", request_timeout=30, cycle_timeout=1.0)
        async with opened(settings) as source:
            for _ in range(2):
                samples = by_queue(await source.read())
                assert [name for name, sample in samples.items() if not was_read(sample)] == ["faults-0"]
                assert samples["faults-0"].unavailable["depth"] == "not reached within 1 s"
            proxy.rule = lambda request: None
            assert all(map(was_read, await source.read()))


async def test_what_one_reading_had_no_time_for_comes_first_in_the_next(
    elasticmq: ElasticMq, queues: list[str]
) -> None:
    with FaultyHttp(elasticmq.url, on(any_reading, Hang(), times=1)) as proxy:
        settings = broker(proxy.url, "faults-", connections=1, request_timeout=30, cycle_timeout=0.5)
        async with opened(settings) as source:
            with pytest.raises(ConnectionLost, match="no queue was read within"):
                await source.read()
            proxy.rule = on(reading("faults-2"), Hang())
            first = [sample.queue for sample in await source.read() if not was_read(sample)]
            assert "faults-2" in first
            proxy.rule, proxy.seen[:] = (lambda request: None), []
            assert all(map(was_read, await source.read()))
            asked = [json.loads(one.body)["QueueUrl"].rsplit("/", 1)[-1] for one in proxy.seen if any_reading(one)]
            assert set(asked[: len(first)]) == set(first)


async def test_a_server_that_answers_no_queue_is_a_lost_connection(elasticmq: ElasticMq, queues: list[str]) -> None:
    with FaultyHttp(elasticmq.url, on(any_reading, Cut())) as proxy, pytest.raises(ConnectionLost, match="cut off"):
        await read_once(broker(proxy.url, "faults-"))


async def test_a_server_that_stops_answering_is_not_waited_for(elasticmq: ElasticMq) -> None:
    for index in range(30):
        elasticmq.make(f"stops-{index:02}")
    with FaultyHttp(elasticmq.url) as proxy:
        proxy.rule = lambda request: Cut() if sum(map(any_reading, proxy.seen)) > 5 else None
        samples = await read_once(broker(proxy.url, "stops-", connections=1))
        assert sum(map(was_read, samples.values())) == 5 and len(samples) == 30
        assert sum(map(any_reading, proxy.seen)) < 20
    reasons = {sample.unavailable["depth"] for sample in samples.values() if not was_read(sample)}
    assert "the server stopped answering" in reasons


async def test_a_connection_that_the_server_closed_is_opened_again(elasticmq: ElasticMq, queues: list[str]) -> None:
    with FaultyHttp(elasticmq.url, on(any_reading, HangUp())) as proxy:
        async with opened(broker(proxy.url, "faults-", connections=1)) as source:
            for _ in range(2):
                assert all(map(was_read, await source.read()))


async def test_an_attribute_that_is_missing_or_absurd_is_unknown_and_not_zero(
    elasticmq: ElasticMq, queues: list[str]
) -> None:
    body = {"Attributes": {"ApproximateNumberOfMessages": "-4", "ApproximateNumberOfMessagesNotVisible": "2"}}
    with FaultyHttp(elasticmq.url, on(reading("faults-1"), Reply(200, json.dumps(body).encode()))) as proxy:
        sample = (await read_once(broker(proxy.url, "faults-")))["faults-1"]
    assert (sample.depth, sample.in_flight, sample.delayed) == (None, 2, None)
    assert sample.unavailable["depth"] == "the answer holds no sound ApproximateNumberOfMessages"
    assert sample.unavailable["delayed"] == "the answer holds no sound ApproximateNumberOfMessagesDelayed"


@pytest.mark.parametrize("code", ["InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredTokenException"])
async def test_credentials_that_are_refused_are_the_users_to_mend_and_never_shown(
    elasticmq: ElasticMq, queues: list[str], code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for matches in (listing, any_reading):
        with (
            FaultyHttp(elasticmq.url, on(matches, error(code, 403))) as proxy,
            pytest.raises(CredentialsRefused, match=code) as raised,
        ):
            await read_once(broker(proxy.url, "faults-"))
        assert "not/to/be/seen" not in str(raised.value) and "AKIATEST" not in str(raised.value)
    assert "not/to/be/seen" not in caplog.text


async def test_a_clock_that_is_off_is_told_as_such(elasticmq: ElasticMq, queues: list[str]) -> None:
    refusal = error("InvalidSignatureException", 403, "Signature expired: 20261120T120000Z is now earlier than …")
    with (
        FaultyHttp(elasticmq.url, on(listing, refusal)) as proxy,
        pytest.raises(CredentialsRefused, match="clock right"),
    ):
        await read_once(broker(proxy.url, "faults-"))


@pytest.mark.parametrize(("matches", "permission"), [(listing, "ListQueues"), (any_reading, "GetQueueAttributes")])
async def test_what_no_queue_allows_is_named(
    elasticmq: ElasticMq, queues: list[str], matches: object, permission: str
) -> None:
    assert callable(matches)
    with (
        FaultyHttp(elasticmq.url, on(matches, error("AccessDeniedException", 403))) as proxy,
        pytest.raises(CredentialsRefused, match=f"allow sqs:{permission}"),
    ):
        await read_once(broker(proxy.url, "faults-"))


@pytest.mark.parametrize("body", [b"<html/>", b'{"QueueUrls": "all"}', b"[]"])
async def test_a_listing_that_cannot_be_read_is_a_lost_connection(elasticmq: ElasticMq, body: bytes) -> None:
    with FaultyHttp(elasticmq.url, on(listing, Reply(200, body))) as proxy, pytest.raises(ConnectionLost):
        await read_once(broker(proxy.url, "faults-"))


async def test_while_the_listing_is_throttled_the_queues_known_are_read(
    elasticmq: ElasticMq, queues: list[str]
) -> None:
    with FaultyHttp(elasticmq.url) as proxy:
        async with opened(broker(proxy.url, "faults-")) as source:
            proxy.rule = on(listing, error("ThrottlingException"))
            assert set(by_queue(await source.read())) == set(queues)


async def test_nobody_at_the_address_is_a_lost_connection() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await read_once(broker(f"http://127.0.0.1:{port}"))


async def test_a_server_that_never_answers_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match=r"no answer within 0\.2 s"):
            await read_once(broker(url, request_timeout=0.2))


async def test_each_request_is_signed_and_the_secret_is_in_none(elasticmq: ElasticMq, queues: list[str]) -> None:
    with FaultyHttp(elasticmq.url) as proxy:
        await read_once(broker(proxy.url, "faults-"))
        assert proxy.seen
        for request in proxy.seen:
            assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/")
            assert "not/to/be/seen" not in f"{request.headers}{request.body!r}"


async def test_a_reference_to_a_secret_is_read_from_its_file(
    elasticmq: ElasticMq, queues: list[str], tmp_path: Path
) -> None:
    (tmp_path / "id").write_text("AKIAFILE\n")
    (tmp_path / "secret").write_text("hidden\n")
    with FaultyHttp(elasticmq.url) as proxy:
        given = {"access_key_id": {"file": tmp_path / "id"}, "secret_access_key": {"file": tmp_path / "secret"}}
        await read_once(broker(proxy.url, "faults-", **given))
        assert "Credential=AKIAFILE/" in proxy.seen[0].headers["authorization"]


async def test_a_listing_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_LISTING_SECONDS", 0.3)
    ended = asyncio.Event()

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(OSError):
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        ended.set()
        writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    with pytest.raises(ConnectionLost):
        await read_once(broker(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    await asyncio.wait_for(ended.wait(), 10)
    server.close()
