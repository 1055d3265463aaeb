"""The tap's stream is read in order, and what comes in small pieces while little happens is read at once."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers.nats.client import Client
from brokers.nats.wire import Frame
from collectors.nats.reader import Message, Reader
from collectors.nats.settings import NatsBroker
from tests.collectors.support import connect
from tests.support.nats import NatsServer


async def _read(server: NatsServer, publish: Any, expected: int) -> tuple[list[Message], list[int]]:
    """What a reader has when ``publish`` was called while it waited, and how many came together each time."""
    client = Client(NatsBroker(name="nats", url=server.url), "tap")
    await client.open()
    await client.api("STREAM.CREATE.READ", {"name": "READ", "subjects": ["read"], "storage": "memory"})
    reader, together = Reader(client, "READ", 1), list[int]()
    whole = reader._take

    def take(frames: list[Frame]) -> None:
        together.append(sum(frame.subject == b"read" for frame in frames))
        whole(frames)

    reader._take = take  # type: ignore[method-assign]
    await reader.open()
    assert await reader.take() == []  # little happens
    _, asked = await asyncio.gather(reader.wait(0.5), publish(client))
    found = await reader.take()
    while len(found) < expected:
        await reader.wait(0.1)
        found += await reader.take()
    await reader.close()
    await client.close()
    assert asked is None
    return found, [count for count in together if count]


async def test_what_comes_bit_by_bit_while_little_happens_is_read_at_once_and_in_order(
    own_nats_server: NatsServer,
) -> None:
    async def publish(client: Client) -> None:
        other = await connect(own_nats_server.url)
        for number in range(30):
            await other.publish("read", str(number).encode())
            await other.flush()
        await other.close()

    found, together = await _read(own_nats_server, publish, 30)
    assert [message.data for message in found] == [str(number).encode() for number in range(30)]
    assert [message.sequence for message in found] == list(range(1, 31))
    assert len(together) <= 3  # of thirty pieces


async def test_an_answer_of_the_api_comes_at_the_end_of_the_wait_and_a_flood_within_it_is_read_whole(
    own_nats_server: NatsServer,
) -> None:
    async def publish(client: Client) -> None:
        other = await connect(own_nats_server.url)
        for number in range(20_000):
            await other.publish("read", b"x" * 200 + str(number).encode())
        await other.flush()
        await other.close()
        assert (await client.api("STREAM.INFO.READ"))["config"]["name"] == "READ"

    found, _ = await _read(own_nats_server, publish, 20_000)
    assert [message.sequence for message in found] == list(range(1, 20_001))
