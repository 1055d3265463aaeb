"""A consumer process of the demo: takes messages, works on them, sometimes fails.

``python -m sojourn.demo.consumers URL CONCURRENCY SEED``
"""

from __future__ import annotations

import asyncio
import random
import sys
import zlib

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from sojourn.demo import scenario
from sojourn.demo.work import connect, stop_event, wait


async def consume(url: str, concurrency: int, seed: int) -> None:
    """Work with ``concurrency`` workers until told to stop; a message in hand is finished first."""
    stop = stop_event()
    client = await connect(url, f"consumer-{seed}")
    broker = client.jetstream(timeout=10)
    chance = random.Random(seed)
    workers = [asyncio.create_task(_work(broker, stop, chance)) for _ in range(concurrency)]
    await stop.wait()
    await asyncio.wait(workers, timeout=5)
    for worker in workers:
        worker.cancel()
    await client.flush()
    await client.close()  # and not drain(): that waits for whatever a cancelled fetch left unread


async def _work(broker: JetStreamContext, stop: asyncio.Event, chance: random.Random) -> None:
    """One worker: a message at a time, so that the number of workers is the consumer's concurrency."""
    queue = await broker.pull_subscribe_bind(scenario.CONSUMER, scenario.STREAM)
    while not stop.is_set():
        fetch = asyncio.create_task(queue.fetch(1, timeout=20))
        told = asyncio.create_task(stop.wait())
        await asyncio.wait({fetch, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not fetch.done():
            fetch.cancel()
            return
        try:
            messages = fetch.result()
        except (NatsError, TimeoutError):  # nothing came, or the broker is away for a moment
            await wait(stop, 0.05)
            continue
        for message in messages:
            await _handle(broker, message, chance)


async def _handle(broker: JetStreamContext, message: Msg, chance: random.Random) -> None:
    """Work on one attempt, then acknowledge it, ask for another attempt, or move the message to the dead letters."""
    await asyncio.sleep(_duration(chance))
    attempt = message.metadata.num_delivered
    if not _fails(message, chance):
        await message.ack()
    elif attempt < scenario.MOST_ATTEMPTS:
        await message.nak(delay=scenario.RETRY_DELAY_SECONDS)
    else:
        dead = f"dead.{message.subject}"
        identity = {"Nats-Msg-Id": f"{scenario.STREAM}-{message.metadata.sequence.stream}"}
        try:
            await broker.publish(dead, message.data, headers={**(message.headers or {}), **identity})
        except (NatsError, TimeoutError):  # not dead-lettered: it comes again
            await message.nak(delay=scenario.RETRY_DELAY_SECONDS)
        else:
            await message.term()


def _duration(chance: random.Random) -> float:
    """Seconds of work: gamma distributed, so that a few take much longer than most."""
    return chance.gammavariate(8.0, scenario.PROCESSING_SECONDS / 8.0)


def _fails(message: Msg, chance: random.Random) -> bool:
    """Whether this attempt fails; a poisoned message, told by its content, always does."""
    if zlib.crc32(message.data) % 100_000 < scenario.POISONED * 100_000:
        return True
    return chance.random() < scenario.FAILING_ATTEMPTS - scenario.POISONED


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
