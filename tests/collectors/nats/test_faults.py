"""What changes, disappears or is too much while a real server is being read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from brokers.errors import ConnectionLost
from brokers.nats.client import ApiError, Client
from collectors.nats.exchange import Answer, Exchange
from collectors.nats.sampler import NatsSource
from collectors.nats.settings import NatsBroker
from collectors.samples import Sample, was_read
from lake.errors import UserError
from tests.collectors.support import api, connect, make_consumer, make_stream, publish
from tests.support.facts import proves
from tests.support.nats import NatsCluster, NatsServer


@pytest.fixture
async def connection(nats_server: NatsServer) -> AsyncIterator[Any]:
    """An application's connection; every stream that it leaves behind is deleted."""
    made = await connect(nats_server.url)
    yield made
    for name in (await api(made, "STREAM.NAMES")).get("streams") or ():
        await api(made, f"STREAM.DELETE.{name}")
    await made.close()


@pytest.fixture
async def source(nats_server: NatsServer, connection: Any) -> AsyncIterator[NatsSource]:
    """Reads every stream."""
    reading = NatsSource(NatsBroker(url=nats_server.url))
    await reading.open()
    yield reading
    await reading.close()


def by_name(found: Sequence[Sample]) -> dict[tuple[str, str | None], Sample]:
    assert len({(sample.queue, sample.subscriber) for sample in found}) == len(found)
    return {(sample.queue, sample.subscriber): sample for sample in found}


def before(monkeypatch: pytest.MonkeyPatch, subject: str, act: Any) -> None:
    """Let ``act`` happen right before the first request whose subject begins so."""
    ask, done = Exchange.ask, asyncio.Event()

    async def asked(self: Exchange, requests: Sequence[tuple[str, Any]], **options: Any) -> list[Answer]:
        if not done.is_set() and any(one.startswith(subject) for one, _ in requests):
            done.set()
            await act()
        return await ask(self, requests, **options)

    monkeypatch.setattr(Exchange, "ask", asked)


async def test_more_consumers_than_a_page_and_more_streams_than_a_page_are_all_read(
    source: NatsSource, connection: Any
) -> None:
    await make_stream(connection, "WIDE", retention="limits", storage="memory")
    await asyncio.gather(*(make_consumer(connection, "WIDE", f"c{number}") for number in range(600)))
    for number in range(300):
        await make_stream(connection, f"S{number}", storage="memory")
    found = by_name(await source.read())
    assert {key for key in found if key[0] == "WIDE"} == {("WIDE", f"c{number}") for number in range(600)}
    assert {queue for queue, _ in found} == {"WIDE", *(f"S{number}" for number in range(300))}


async def test_a_stream_or_consumer_that_is_deleted_while_it_is_read_is_left_out(
    source: NatsSource, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GONE", "STAYS", "LESS"):
        await make_stream(connection, name)
        await make_consumer(connection, name, "work")
        await publish(connection.jetstream(), 1, subject=name.lower())

    async def delete() -> None:
        await api(connection, "STREAM.DELETE.GONE")
        await api(connection, "CONSUMER.DELETE.LESS.work")

    before(monkeypatch, "CONSUMER.LIST", delete)
    found = by_name(await source.read())
    assert set(found) == {("STAYS", None), ("LESS", None)}
    assert found["LESS", None].consumers == 0


async def test_a_stream_deleted_between_two_pages_hides_no_other(
    source: NatsSource, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"P{number:03}" for number in range(300)]
    for name in names:
        await make_stream(connection, name, storage="memory")
    assert {sample.queue for sample in await source.read()} == set(names)
    ask = Exchange.ask

    async def asked(self: Exchange, requests: Sequence[tuple[str, Any]], **options: Any) -> list[Answer]:
        if requests == [("STREAM.LIST", {"offset": 256})]:
            await api(connection, "STREAM.DELETE.P000")  # P256 now stands on the page that was read already
        return await ask(self, requests, **options)

    monkeypatch.setattr(Exchange, "ask", asked)
    assert {sample.queue for sample in await source.read()} == set(names)  # P000 was still there when it was read
    assert {sample.queue for sample in await source.read()} == set(names) - {"P000"}


async def test_a_stream_made_anew_begins_its_counts_and_its_age_again(source: NatsSource, connection: Any) -> None:
    for number in (5, 2):
        await make_stream(connection, "ORDERS")
        await make_consumer(connection, "ORDERS", "work")
        await publish(connection.jetstream(), number)
        (sample,) = await source.read()
        assert (sample.published_total, sample.depth) == (number, number)
        assert sample.oldest_age_seconds is not None
        assert 0 <= sample.oldest_age_seconds < 5
        await api(connection, "STREAM.DELETE.ORDERS")
    assert await source.read() == []


async def test_the_age_is_that_of_the_consumers_own_subjects_and_survives_a_purge(
    source: NatsSource, connection: Any
) -> None:
    await make_stream(connection, "EVENTS", retention="limits")
    await make_consumer(connection, "EVENTS", "late", filter_subject="events.1")
    await make_consumer(connection, "EVENTS", "all")
    await connection.jetstream().publish("events.0", b"")
    await asyncio.sleep(0.3)
    await connection.jetstream().publish("events.1", b"")
    found = by_name(await source.read())
    late, every = found["EVENTS", "late"].oldest_age_seconds, found["EVENTS", "all"].oldest_age_seconds
    assert late is not None and every is not None and every - late > 0.25
    await api(connection, "STREAM.PURGE.EVENTS")
    await connection.jetstream().publish("events.0", b"")
    after = by_name(await source.read())
    assert (after["EVENTS", "late"].depth, after["EVENTS", "late"].oldest_age_seconds) == (0, 0.0)
    newest = after["EVENTS", "all"].oldest_age_seconds
    assert newest is not None and newest < every


async def test_one_stream_that_is_refused_or_tells_nonsense_fails_no_other(
    source: NatsSource, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BAD", "ODD", "GOOD"):
        await make_stream(connection, name)
        await make_consumer(connection, name, "work")
    ask = Exchange.ask

    async def asked(self: Exchange, requests: Sequence[tuple[str, Any]], **options: Any) -> list[Answer]:
        answers = await ask(self, requests, **options)
        for index, (subject, _) in enumerate(requests):
            if subject == "CONSUMER.LIST.BAD":
                answers[index] = ApiError(subject, 10008, "JetStream system temporarily unavailable")
            if subject == "CONSUMER.LIST.ODD":
                answers[index] = {"total": 1, "consumers": [{"name": "work", "num_pending": 0, "num_ack_pending": 0}]}
        return answers

    monkeypatch.setattr(Exchange, "ask", asked)
    found = by_name(await source.read())
    assert was_read(found["GOOD", None])
    for name, reason in (("BAD", "temporarily unavailable"), ("ODD", "cannot be read")):
        assert not was_read(found[name, None])
        assert all(reason in why for why in found[name, None].unavailable.values())


async def test_a_broker_that_falls_silent_is_a_lost_connection(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.nats.exchange.SILENCE", 0.3)
    client = Client(NatsBroker(url=own_nats_server.url), "test")
    await client.open()
    exchange = Exchange(client)
    await exchange.open()
    connection = await connect(own_nats_server.url)
    await connection.subscribe("$JS.API.NOBODY", cb=_silent)
    await connection.flush()
    with pytest.raises(ConnectionLost, match="does not answer NOBODY"):
        await exchange.ask([("INFO", None), ("NOBODY", None)])
    (after,) = await exchange.ask([("INFO", None)])  # a late answer to the round before disturbs no other
    assert isinstance(after, dict)
    await connection.close()
    await client.close()


async def _silent(message: Any) -> None:
    """Hears a request and says nothing."""


async def test_subjects_are_counted_where_it_is_asked_for(nats_server: NatsServer, connection: Any) -> None:
    await make_stream(connection, "COUNTED")
    await publish(connection.jetstream(), 7, subject="counted")
    stream = {"name": "COUNTED", "subjects": "counted.>", "most_subjects": 2}
    reading = NatsSource(NatsBroker.model_validate({"url": nats_server.url, "streams": [stream, "ABSENT"]}))
    await reading.open()
    found = {sample.queue: sample.depth for sample in await reading.read()}
    await reading.close()
    assert found == {"COUNTED": 7, "COUNTED/counted.0": 3, "COUNTED/counted.1": 2, "COUNTED/*": 2}


async def test_a_log_has_no_depth_a_work_queue_without_a_consumer_does(
    nats_server: NatsServer, connection: Any
) -> None:
    for name, retention in (("AUDIT", "limits"), ("INBOX", "limits"), ("JOBS", "workqueue")):
        await make_stream(connection, name, retention=retention)
        await publish(connection.jetstream(), 3, subject=name.lower())
    reading = NatsSource(NatsBroker.model_validate({"url": nats_server.url, "backlogs": ["IN*"]}))
    await reading.open()
    found = by_name(await reading.read())
    await reading.close()
    assert {queue: sample.depth for (queue, _), sample in found.items()} == {"AUDIT": None, "INBOX": 3, "JOBS": 3}
    log = found["AUDIT", None]
    assert (log.oldest_age_seconds, log.consumers, log.published_total) == (None, 0, 3)
    assert "no consumer reads it: a log" in log.unavailable["depth"]


@proves("nats", "cluster shapes", "a list of servers", "JetStream domains")
async def test_where_a_server_is_away_the_next_of_the_list_is_read_and_a_domain_by_its_own_api(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("jetstream { domain: edge }")
    servers = [NatsServer(tmp_path / name, "-c", str(tmp_path / "config")) for name in ("a", "b")]
    urls = [server.url for server in servers]
    reading = NatsSource(NatsBroker.model_validate({"url": urls[0], "servers": urls[1:], "domain": "edge"}))
    try:
        for server in servers:
            server.start()
            made = await connect(server.url)
            await make_stream(made, f"AT-{urls.index(server.url)}")
            await made.close()
        await reading.open()
        assert [sample.queue for sample in await reading.read()] == ["AT-0"]
        servers[0].kill()
        with pytest.raises(ConnectionLost):
            for _ in range(200):
                await reading.read()
                await asyncio.sleep(0.05)
        await reading.open()
        assert [sample.queue for sample in await reading.read()] == ["AT-1"]
        elsewhere = NatsSource(NatsBroker.model_validate({"url": urls[1], "domain": "other"}))
        with pytest.raises(UserError, match="no JetStream for this account in domain 'other'"):
            await elsewhere.open()
        await elsewhere.close()
        servers[1].kill()
        with pytest.raises(ConnectionLost, match=f"{urls[1]}.*{urls[0]}"):
            await reading.open()
    finally:
        await reading.close()
        for server in servers:
            server.stop()


@pytest.mark.slow
@proves("nats", "cluster shapes", "three servers, one of which dies")
@pytest.mark.parametrize("streams", [[], ["HERE", "AWAY"]], ids=["all", "named"])
async def test_a_node_that_is_lost_makes_its_own_streams_unknown_in_their_rows_and_no_other(
    tmp_path: Path, streams: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if streams:
        monkeypatch.setattr("collectors.nats.exchange.SILENCE", 4.0)
    with NatsCluster(tmp_path) as cluster:
        lost = 2 if cluster.led_by() == 1 else 1
        made = await connect(cluster.nodes[0].url)
        for name, tag in (("HERE", "at-0"), ("AWAY", f"at-{lost}")):
            await make_stream(made, name, placement={"tags": [tag]}, retention="limits")
            for consumer in ("first", "second"):
                await make_consumer(made, name, consumer)
            await publish(made.jetstream(), 3, subject=name.lower())
        reading = NatsSource(NatsBroker.model_validate({"url": cluster.nodes[0].url, "streams": streams}))
        await reading.open()
        before = by_name(await reading.read())
        assert {key: sample.depth for key, sample in before.items()} == dict.fromkeys(
            ((name, consumer) for name in ("HERE", "AWAY") for consumer in ("first", "second")), 3
        )
        cluster.nodes[lost].kill()
        for _ in range(2):
            found = by_name(await read_on(reading))
            assert found.keys() == before.keys()
            for (queue, _), sample in found.items():
                assert sample.depth == (3 if queue == "HERE" else None)
                assert was_read(sample) or "does not answer" in sample.unavailable["depth"]
        await made.close()
        await reading.close()


async def read_on(reading: NatsSource) -> Sequence[Sample]:
    """A reading, opening again as the sampler does: while the nodes choose another leader of them all, none answers."""
    for _ in range(50):
        with suppress(ConnectionLost):
            return await reading.read()
        await asyncio.sleep(0.1)
        with suppress(ConnectionLost):
            await reading.open()
    raise AssertionError("not within 50 readings")


async def test_an_attempt_that_gets_no_answer_leaves_no_socket_open() -> None:
    closed = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side ends
        closed.set()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await Client(NatsBroker(url=url), "test").open(timeout=0.2)
    await asyncio.wait_for(closed.wait(), 10)
    server.close()
