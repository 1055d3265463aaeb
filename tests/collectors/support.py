"""Applications that use a real NATS server, and collectors that watch them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats

from collectors.nats.settings import NatsBroker
from collectors.run import run
from collectors.settings import CollectSettings
from lake.store import Lake
from tests.support.waiting import PATIENCE, wait_until

_CHILD = """
import signal, sys, threading
from pathlib import Path
from collectors.run import run
from collectors.settings import CollectSettings
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run(CollectSettings.model_validate_json(sys.argv[1]), Path(sys.argv[2]), stop)
"""


async def connect(url: str, **options: Any) -> Any:
    """A connection of an application."""
    return await nats.connect(url, allow_reconnect=False, **options)


async def api(connection: Any, subject: str, body: Any = None) -> dict[str, Any]:
    """JetStream's answer."""
    reply = await connection.request(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"", timeout=5)
    return dict(json.loads(reply.data))


async def make_stream(connection: Any, name: str, **config: Any) -> None:
    """A stream as an application makes it: a work queue unless told otherwise."""
    body = {"name": name, "subjects": [f"{name.lower()}.>"], "retention": "workqueue", "storage": "file", **config}
    answer = await api(connection, f"STREAM.CREATE.{name}", body)
    assert "error" not in answer, answer


async def make_consumer(connection: Any, stream: str, name: str, **config: Any) -> None:
    """A durable consumer that acknowledges each message."""
    whole = {"durable_name": name, "name": name, "ack_policy": "explicit", "max_ack_pending": 5000, **config}
    answer = await api(connection, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": whole})
    assert "error" not in answer, answer


def make_queue(url: str, name: str = "ORDERS", *consumers: str, **consumer_config: Any) -> None:
    """A work queue with one consumer, ``work``, unless others are named."""

    async def work() -> None:
        connection = await connect(url)
        await make_stream(connection, name)
        for consumer in consumers or ("work",):
            await make_consumer(connection, name, consumer, **consumer_config)
        await connection.close()

    asyncio.run(work())


def settings(url: str, *streams: Any, **changes: Any) -> CollectSettings:
    """Settings that watch ``streams`` (one called ORDERS unless named)."""
    broker = {"name": "mq", "url": url, "streams": list(streams) or ["ORDERS"], **changes.pop("broker", {})}
    return CollectSettings.model_validate({"brokers": [broker], "sample_interval": 0.2, **changes})


@contextmanager
def running(chosen: CollectSettings, root: Path) -> Iterator[threading.Thread]:
    """The collectors, in a thread of this process, stopped in order at the end; what they raise is raised here."""
    stop, raised = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            run(chosen, root, stop)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(30 * PATIENCE)
        assert not thread.is_alive()
        if raised:
            raise raised[0]


@contextmanager
def collecting(chosen: CollectSettings, root: Path) -> Iterator[None]:
    """:func:`running` collectors, once they are attached to what they tap."""
    with running(chosen, root) as thread:
        wait_attached(chosen, lambda: not thread.is_alive())
        yield


def start(chosen: CollectSettings, root: Path) -> subprocess.Popen[bytes]:
    """The collectors in a process of their own."""
    command = [sys.executable, "-c", _CHILD, chosen.model_dump_json(), str(root)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def wait_attached(chosen: CollectSettings, over: Any = lambda: False) -> None:
    """Wait until every tapped stream tells its arrivals and every consumer there its acknowledgements."""
    broker = chosen.brokers[0] if chosen.brokers else None
    if not isinstance(broker, NatsBroker) or not broker.tap.enabled or not broker.streams:
        return

    async def attached() -> bool:
        connection = await connect(broker.url)
        try:
            tap = await api(connection, f"STREAM.INFO.{broker.tap.stream}")
            if "error" in tap or not tap["state"]["consumer_count"]:
                return False
            for stream in broker.streams:
                info = await api(connection, f"STREAM.INFO.{stream.name}")
                if "error" not in info and not info["config"].get("republish"):
                    return False
                page = await api(connection, f"CONSUMER.LIST.{stream.name}")
                if not all(one["config"].get("sample_freq") for one in page.get("consumers") or ()):
                    return False
            return True
        finally:
            await connection.close()

    wait_until(lambda: over() or asyncio.run(attached()), "the tap to be attached")


def events(root: Path) -> list[dict[str, Any]]:
    """Every message event in the lake."""
    return list(Lake(root).read("message_events").to_pylist())


def kinds(root: Path) -> Counter[str]:
    """How many events of each type there are."""
    return Counter(event["event_type"] for event in events(root))


def wait_finished(root: Path, number: int, seconds: float = 20.0) -> list[dict[str, Any]]:
    """Wait until ``number`` messages are known to be finished; all events."""

    def enough() -> bool:
        counts = kinds(root) if (root / "bronze").exists() else Counter()
        return counts["completed"] + counts["dead_lettered"] + counts["expired"] >= number

    wait_until(enough, f"{number} finished messages", seconds=seconds)
    return events(root)


async def publish(stream: Any, number: int, *, subject: str = "orders", tenants: int = 3, pause: float = 0.0) -> None:
    """Publish messages of several tenants."""
    for index in range(number):
        await stream.publish(f"{subject}.{index % tenants}", b"x", headers={"Tenant": f"t{index % tenants}"})
        if pause:
            await asyncio.sleep(pause)


async def consume(
    stream: Any,
    number: int | None,
    *,
    queue: str = "ORDERS",
    name: str = "work",
    enough: asyncio.Task[int] | None = None,
) -> Counter[str]:
    """Take ``number`` messages, or all that ``enough`` published, to their end.

    Of ten sequences one is refused twice, one terminated.
    """
    pull = await stream.pull_subscribe_bind(name, queue)
    done: Counter[str] = Counter()
    while number is None or done["completed"] + done["dead_lettered"] < number:
        if enough is not None and enough.done():
            number = enough.result()
        try:
            messages = await pull.fetch(50, timeout=0.3)
        except TimeoutError:
            continue
        for message in messages:
            done["received"] += 1
            sequence = message.metadata.sequence.stream
            if sequence % 10 == 3 and message.metadata.num_delivered < 3:
                await message.nak()
                done["failed"] += 1
            elif sequence % 10 == 7:
                await message.term()
                done["dead_lettered"] += 1
            else:
                await message.ack()
                done["completed"] += 1
    return done
