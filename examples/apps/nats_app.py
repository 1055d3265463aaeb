"""An ordinary NATS JetStream application, by nats-py alone: ``produce`` sends orders, ``consume`` works on them.

python -m examples.apps.nats_app produce|consume NATS_URL JOURNAL NUMBER
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

import nats
from nats.js.api import RetentionPolicy, StreamConfig

from examples.apps.journal import Journal

STREAM, SUBJECT, DURABLE = "ORDERS", "orders", "billing"


async def produce(url: str, journal: Journal, number: int) -> None:
    """Send ``number`` orders, one each few milliseconds."""
    connection = await nats.connect(url)
    stream = connection.jetstream()
    config = StreamConfig(name=STREAM, subjects=[f"{SUBJECT}.>"], retention=RetentionPolicy.WORK_QUEUE)
    if STREAM not in {info.config.name for info in await stream.streams_info()}:
        await stream.add_stream(config)
    for index in range(number):
        order = uuid.uuid4().hex
        journal.note("sent", order)
        await stream.publish(f"{SUBJECT}.t{index % 3}", order.encode(), headers={"Tenant": f"t{index % 3}"})
        await asyncio.sleep(0.005)
    await connection.close()


async def consume(url: str, journal: Journal, number: int) -> None:
    """Work on ``number`` orders, slower than they come; acknowledge each."""
    connection = await nats.connect(url)
    pull = await connection.jetstream().pull_subscribe(f"{SUBJECT}.>", durable=DURABLE, stream=STREAM)
    done = 0
    while done < number:
        try:
            messages = await pull.fetch(1, timeout=1)
        except TimeoutError:
            continue
        for message in messages:
            journal.note("begun", message.data.decode())
            await asyncio.sleep(0.01)
            journal.note("done", message.data.decode())
            await message.ack_sync()
            done += 1
    await connection.close()


if __name__ == "__main__":
    role, url, path, number = sys.argv[1:]
    work = produce if role == "produce" else consume
    asyncio.run(work(url, Journal(Path(path)), int(number)))
