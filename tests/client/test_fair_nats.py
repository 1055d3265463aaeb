"""A fair order over a real broker's subjects: the quiet overtake what is already in the stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, RetentionPolicy

from sojourn.client.adapters.nats import FairSubjects
from tests.support.nats import NatsServer
from tests.support.waiting import PATIENCE


@asynccontextmanager
async def stream(server: NatsServer, name: str) -> AsyncIterator[Any]:
    client = await nats.connect(server.url)
    jetstream = client.jetstream(timeout=3 * PATIENCE)
    await jetstream.add_stream(name=name, subjects=[f"{name}.*"], retention=RetentionPolicy.WORK_QUEUE)
    try:
        yield jetstream
    finally:
        await jetstream.delete_stream(name)
        await client.close()


@asynccontextmanager
async def running(consumer: FairSubjects) -> AsyncIterator[None]:
    task = asyncio.create_task(consumer.run())
    try:
        yield
    finally:
        consumer.stop()
        await asyncio.wait_for(task, 60 * PATIENCE)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)


def remembering(seen: list[tuple[str, str]], seconds: float = 0.002) -> Callable[[Any], Awaitable[None]]:
    async def handle(message: Any) -> None:
        await asyncio.sleep(seconds)
        seen.append((message.subject.split(".")[1], message.data.decode()))
        await message.ack()

    return handle


async def test_the_quiet_overtake_what_is_already_in_the_broker(nats_server: NatsServer) -> None:
    async with stream(nats_server, "overtaken") as jetstream:
        for number in range(500):
            await jetstream.publish("overtaken.flood", str(number).encode())
        for number in range(20):
            await jetstream.publish("overtaken.quiet", str(number).encode())
        seen: list[tuple[str, str]] = []
        async with running(FairSubjects(jetstream, "overtaken", "overtaken.*", remembering(seen), workers=1)):
            await until(lambda: len(seen) == 520)
        last = max(place for place, (tenant, _) in enumerate(seen) if tenant == "quiet")
        assert last < 120, "they were the last to be published"
        for tenant in ("flood", "quiet"):
            numbers = [int(data) for name, data in seen if name == tenant]
            assert numbers == sorted(set(numbers)), "each tenant's own order is kept, and nothing comes twice"
        info = await jetstream.stream_info("overtaken")
        assert info.state.messages == 0


async def test_tenants_that_come_later_are_found_whatever_they_are_called(nats_server: NatsServer) -> None:
    async with stream(nats_server, "found") as jetstream:
        seen: list[tuple[str, str]] = []
        names = ["later", "with space".replace(" ", "%20"), "ä/ö", "x" * 200, "UPPER_lower-1"]
        async with running(FairSubjects(jetstream, "found", "found.*", remembering(seen), discover_seconds=0.05)):
            for name in names:
                await jetstream.publish(f"found.{name}", b"1")
            await until(lambda: len(seen) == len(names))
            for name in names:
                await jetstream.publish(f"found.{name}", b"2")
            await until(lambda: len(seen) == 2 * len(names))
        assert {tenant for tenant, _ in seen} == set(names)


async def test_several_workers_and_weights_share_as_agreed_and_an_end_loses_nothing(nats_server: NatsServer) -> None:
    async with stream(nats_server, "shared") as jetstream:
        for number in range(300):
            for tenant in ("gold", "plain"):
                await jetstream.publish(f"shared.{tenant}", str(number).encode())
        seen: list[tuple[str, str]] = []
        worked = remembering(seen, 0.02)  # so long that both always have something fetched: shares are of who waits
        consumer = FairSubjects(
            jetstream, "shared", "shared.*", worked, workers=4, ahead=40, weights={"gold": 3.0},
            config=ConsumerConfig(ack_wait=300),
        )  # fmt: skip
        async with running(consumer):
            await until(lambda: len(seen) >= 240)
            first = Counter(tenant for tenant, _ in seen[40:240])
        assert 1.8 < first["gold"] / first["plain"] < 4.5
        assert consumer.stats().returned > 0 and consumer.stats().buffered == 0
        async with running(FairSubjects(jetstream, "shared", "shared.*", remembering(seen), workers=4)):
            await until(lambda: len(seen) == 600)  # what was given back came at once, not after ack_wait
        assert len(set(seen)) == 600


async def test_a_message_that_fails_is_told_and_the_others_go_on(nats_server: NatsServer) -> None:
    async with stream(nats_server, "failing") as jetstream:
        for number in range(10):
            await jetstream.publish("failing.a", str(number).encode())
        done, told = [], []

        async def handle(message: Any) -> None:
            if message.data == b"3":
                raise RuntimeError("poison")
            done.append(message.data)
            await message.ack()

        async def failed(message: Any, error: Exception) -> None:
            told.append((message.data, str(error)))
            await message.term()
            raise RuntimeError("and so does the callback")

        consumer = FairSubjects(jetstream, "failing", "failing.*", handle, failed=failed)
        async with running(consumer):
            await until(lambda: len(done) + len(told) == 10)
        assert told == [(b"3", "poison")]
        assert (consumer.stats().handled, consumer.stats().failed) == (9, 1)


async def test_a_broker_that_restarts_is_consumed_from_again(own_nats_server: NatsServer) -> None:
    async with stream(own_nats_server, "restarted") as jetstream:
        seen: list[tuple[str, str]] = []
        consumer = FairSubjects(jetstream, "restarted", "restarted.*", remembering(seen))
        async with running(consumer):
            await jetstream.publish("restarted.a", b"1")
            await until(lambda: len(seen) == 1)
            own_nats_server.kill()
            own_nats_server.start()
            for data in (b"2", b"3"):
                while True:
                    with contextlib.suppress(Exception):
                        await jetstream.publish("restarted.a", data, headers={"Nats-Msg-Id": data.decode()})
                        break
            await until(lambda: len({data for _, data in seen}) == 3)


@pytest.mark.parametrize("subject", ["orders", "orders.>", "*.*", "orders.a*"])
def test_a_subject_without_one_place_for_the_tenant_is_refused(subject: str) -> None:
    with pytest.raises(ValueError, match="tenant's place"):
        FairSubjects(None, "orders", subject, remembering([]))


def test_bounds_that_make_no_sense_are_refused() -> None:
    for changes in ({"workers": 0}, {"ahead": 0}, {"discover_seconds": 0}):
        with pytest.raises(ValueError, match="above 0"):
            FairSubjects(None, "orders", "orders.*", remembering([]), **changes)  # type: ignore[arg-type]
