"""The demo's broker: a real NATS JetStream server, from its wheel, on free loopback ports."""

from __future__ import annotations

import json
import shutil
import sysconfig
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from lake.errors import SojournError, UserError
from sojourn.demo import scenario
from sojourn.supervise.probes import free_port, http_ok
from sojourn.supervise.supervisor import Child


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the demo's server listens and keeps its streams; a second run on the same folder continues them."""

    store: Path
    port: int
    monitor_port: int

    @classmethod
    def below(cls, folder: Path) -> Broker:
        """A broker that stores in ``folder``, on ports that are free now."""
        return cls(folder, free_port(), free_port())

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def child(self) -> Child:
        """How a supervisor runs the server."""
        command = [server_binary(), "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", str(self.store)]
        command += ["-m", str(self.monitor_port)]
        health = http_ok(f"http://127.0.0.1:{self.monitor_port}/healthz")
        return Child("broker", command, ready=health, ready_within=20)

    def reading(self) -> StreamReading:
        """What the server itself says of the work queue."""
        state = self._work_queue().get("state", {})
        return StreamReading(state.get("last_seq", 0), state.get("messages", 0))

    def tapped(self) -> bool:
        """Whether the server tells of every message's life from now on: the collector has set up its tap."""
        try:
            queue = self._work_queue("&consumers=true&config=true")
        except SojournError:
            return False
        sampled = [consumer["config"].get("sample_freq") for consumer in queue.get("consumer_detail") or ()]
        return bool(queue.get("config", {}).get("republish")) and bool(sampled) and all(sampled)

    def _work_queue(self, more: str = "") -> dict[str, Any]:
        """The work queue's entry on the server's monitoring port; empty while there is no such stream."""
        url = f"http://127.0.0.1:{self.monitor_port}/jsz?streams=true{more}"
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                accounts = json.load(response).get("account_details") or ()
        except (OSError, ValueError) as error:
            raise SojournError(f"the broker's monitoring port does not answer: {error}") from error
        streams = [stream for account in accounts for stream in account.get("stream_detail") or ()]
        return next((stream for stream in streams if stream["name"] == scenario.STREAM), {})


@dataclass(frozen=True, slots=True)
class StreamReading:
    """Messages that the work queue has ever taken, and those that it still holds."""

    published: int
    held: int


def server_binary() -> str:
    """The ``nats-server`` of this environment, else one on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise UserError("nats-server is not installed", "pip install 'sojourn[demo]'")
    return found


async def provision(url: str) -> None:
    """Make the work queue, its consumer and the dead letters, as the broker's owner would; keep what is there.

    Nothing here is for Sojourn: the collector itself sets up what its tap needs.
    """
    work = StreamConfig(
        name=scenario.STREAM,
        subjects=[scenario.SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
    )
    dead = StreamConfig(
        name=scenario.DEAD_LETTERS,
        subjects=[scenario.DEAD_LETTER_SUBJECTS],
        storage=StorageType.FILE,
        max_msgs=100_000,
    )
    consumer = ConsumerConfig(
        durable_name=scenario.CONSUMER,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=30,
        max_ack_pending=scenario.CONCURRENCY,
        max_waiting=4 * scenario.CONCURRENCY,
    )
    try:
        client = await nats.connect(url, connect_timeout=5, max_reconnect_attempts=3)
        try:
            broker = client.jetstream()
            for stream in (work, dead):
                try:
                    await broker.stream_info(str(stream.name))
                except NotFoundError:
                    await broker.add_stream(stream)
            try:
                await broker.consumer_info(scenario.STREAM, scenario.CONSUMER)
            except NotFoundError:
                await broker.add_consumer(scenario.STREAM, consumer)
        finally:
            await client.close()
    except (NatsError, OSError) as error:
        raise SojournError(f"the demo's queue could not be made: {error}") from error
