"""Every kind of actuator as the contract suite meets it: a real server, and what else there is to know of it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from actuators.base import Demand
from tests.collectors.support import api, connect
from tests.support.kafka import KafkaServer
from tests.support.nats import NatsServer
from tests.support.process import Server
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

PASSWORD = "ACTUATOR_PASSWORD"


class Running(Protocol):
    """A server that the suite may end and start again."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class Place:
    """One kind's server and our settings there."""

    settings: dict[str, Any]
    server: Running | None = None
    #: Sets what ``place`` names as somebody else would; "" is any value that is not ours.
    meddle: Callable[[Any, str], None] = lambda actuator, place: None
    #: Settings under which the server, or the actuator, refuses the change.
    refused: dict[str, Any] = field(default_factory=dict)
    #: What stands before anybody has changed anything.
    before: str | None = None
    #: Whether it starts within seconds: what the suite shows of a server that is away, others show for it.
    quick: bool = True
    #: What of it is ended and started again instead of the whole, where that is quicker.
    away: Running | None = None
    #: Whether other kinds have the same server, so that :func:`end_shared` ends it.
    shared: bool = False


_SHARED: dict[str, Any] = {}


def _shared(name: str, make: Callable[[], Any]) -> Any:
    """A server that several kinds have together: it takes many seconds to start."""
    if name not in _SHARED:
        _SHARED[name] = make()
        _SHARED[name].start()
    return _SHARED[name]


def end_shared() -> None:
    """End the servers that several kinds had together."""
    while _SHARED:
        _SHARED.popitem()[1].stop()


def written_over(actuator: Any, place: str, *, demand: Demand) -> None:
    """What another limit would have written there."""
    actuator.write(place, actuator.value(demand), 60.0)


def file_place(folder: Path, other: Demand) -> Place:
    """A file in a folder that is there."""
    folder.mkdir(parents=True)
    (folder / "foreign.json").write_text('{"orders": []}')
    return Place(
        {"kind": "file", "path": str(folder / "limits.json")},
        meddle=partial(written_over, demand=other),
        refused={"path": str(folder / "foreign.json")},
    )


def redis_place(folder: Path, other: Demand) -> Place:
    """A Redis that has a user who may only read."""
    server = RedisServer(folder)
    server.start()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+get", "+select")
    (folder / "nothing").write_text("any")
    refused = {"user": "reader", "password": {"file": str(folder / "nothing")}}
    settings = {"kind": "redis_key", "url": server.url}
    return Place(settings, server, partial(written_over, demand=other), refused)


def nats_kv_place(folder: Path, other: Demand) -> Place:
    """A NATS server with a bucket that keeps its entries for ever, beside the one that we make."""
    server = NatsServer(folder)
    server.start()

    async def prepare() -> None:
        connection = await connect(server.url)
        bucket = {"name": "KV_lasting", "subjects": ["$KV.lasting.>"], "max_msgs_per_subject": 1, "storage": "file"}
        assert "error" not in await api(connection, "STREAM.CREATE.KV_lasting", bucket)
        await connection.close()

    asyncio.run(prepare())
    settings = {"kind": "nats_kv", "url": server.url, "timeout": 1.5}
    return Place(settings, server, partial(written_over, demand=other), {"bucket": "lasting"})


def _nats_consumers(folder: Path) -> NatsServer:
    server = NatsServer(folder)
    server.start()

    async def prepare() -> None:
        connection = await connect(server.url)
        stream = {"name": "ORDERS", "subjects": ["orders.>"], "retention": "workqueue", "storage": "file"}
        assert "error" not in await api(connection, "STREAM.CREATE.ORDERS", stream)
        for tenant in ("t0", "t1"):
            config = {"durable_name": f"of-{tenant}", "ack_policy": "explicit", "max_ack_pending": 500}
            body = {"stream_name": "ORDERS", "config": config | {"filter_subject": f"orders.{tenant}"}}
            assert "error" not in await api(connection, f"CONSUMER.CREATE.ORDERS.of-{tenant}", body)
        await connection.close()

    asyncio.run(prepare())
    return server


def nats_pause_place(folder: Path, other: Demand) -> Place:
    """A consumer for each tenant."""
    server = _nats_consumers(folder)
    settings = {"kind": "nats_pause", "url": server.url, "timeout": 1.5, "stream": "ORDERS", "consumer": "of-{tenant}"}
    return Place(settings, server, partial(written_over, demand=other), {"consumer": "no-{tenant}"})


def nats_in_flight_place(folder: Path, other: Demand) -> Place:
    """A consumer for each tenant, with a bound of its own."""
    server = _nats_consumers(folder)
    settings = {
        "kind": "nats_max_ack_pending",
        "url": server.url,
        "timeout": 1.5,
        "stream": "ORDERS",
        "consumer": "of-{tenant}",
    }
    meddle = partial(written_over, demand=other)
    return Place(settings | {"service_seconds": 0.5}, server, meddle, {"service_seconds": 3600.0}, before="500")


@dataclass
class RabbitApplication:
    """RabbitMQ within its node: without it nobody listens, and the node need not start again."""

    server: RabbitServer

    def start(self) -> None:
        self.server.ctl("start_app")
        wait_until(self._answers, "the management API to answer", seconds=60)

    def stop(self) -> None:
        self.server.ctl("stop_app")

    def _answers(self) -> bool:
        try:
            return bool(self.server.api("GET", "overview"))
        except OSError:
            return False


def rabbitmq_place(folder: Path, other: Demand) -> Place:
    """A queue for each tenant that refuses what is too much, and one that throws it away."""
    server: RabbitServer = _shared("rabbitmq", lambda: RabbitServer(folder, shovels=True))
    with server.connect() as connection:
        channel = connection.channel()
        for tenant in ("t0", "t1"):
            channel.queue_declare(f"orders.{tenant}", durable=True, arguments={"x-overflow": "reject-publish"})
            channel.queue_declare(f"losing.{tenant}", durable=True)
    settings = {"kind": "rabbitmq_policy", "url": server.url, "user": server.user, "password": {"env": PASSWORD}}
    meddle, losing = partial(written_over, demand=other), {"queue": "losing.{tenant}"}
    return Place(settings, server, meddle, losing, away=RabbitApplication(server), shared=True)


def rabbitmq_shovel_place(folder: Path, other: Demand) -> Place:
    """A queue for each tenant, in a node that has shovels; somebody else's shovel has another prefetch."""
    server: RabbitServer = _shared("rabbitmq", lambda: RabbitServer(folder, shovels=True))
    with server.connect() as connection:
        for tenant in ("t0", "t1"):
            connection.channel().queue_declare(f"jobs.{tenant}", durable=True)
    settings = {"kind": "rabbitmq_shovel", "url": server.url, "user": server.user, "password": {"env": PASSWORD}}

    def meddle(actuator: Any, place: str) -> None:
        his = json.loads(actuator.value(other)) | {"src-prefetch-count": 7}
        actuator.write(place, json.dumps(his), 60.0)

    away = RabbitApplication(server)
    names = {"queue": "jobs.{tenant}", "aside": "jobs.{tenant}-aside", "timeout": 30.0}
    return Place(settings | names, server, meddle, {"queue": "none.{tenant}"}, away=away, shared=True)


def kafka_place(folder: Path, other: Demand) -> Place:
    """A Kafka broker; a stricter quota is there for one user."""
    server: KafkaServer = _shared("kafka", lambda: KafkaServer(folder))
    settings = {"kind": "kafka_quota", "bootstrap": server.bootstrap, "message_bytes": 1000.0}
    stricter = {"entity_user": None, "entity_client_id": "strict-{tenant}"}
    from actuators.kafka_quota import KafkaQuota, KafkaQuotaSettings

    strict = KafkaQuota(KafkaQuotaSettings(name="x", **settings, entity_client_id="strict-{tenant}"))  # type: ignore[arg-type]
    strict.write(json.dumps({"client-id": "strict-t0"}), "10.0", 0.0)
    meddle = partial(written_over, demand=other)
    return Place(settings | {"entity_user": "{tenant}"}, server, meddle, stricter, shared=True)


def kafka_topic_place(folder: Path, other: Demand) -> Place:
    """A Kafka broker; one topic is not compacted."""
    server: KafkaServer = _shared("kafka", lambda: KafkaServer(folder))
    server.make_topics("thrown-away")
    settings = {"kind": "kafka_topic", "bootstrap": server.bootstrap}
    meddle = partial(written_over, demand=other)
    return Place(settings, server, meddle, {"topic": "thrown-away"}, quick=False, shared=True)


class Resources(Server):
    """A server of resources in memory: PUT, GET, DELETE; below ``/closed`` nobody may write."""

    def __init__(self, port: int = 0) -> None:
        self.held: dict[str, bytes] = {}
        self.port = port
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        held = self.held

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                there = self.path in held
                self._answer(200 if there else 404, held.get(self.path, b""))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.startswith("/closed"):
                    return self._answer(403, b"not here")
                held[self.path] = body
                return self._answer(204)

            def do_DELETE(self) -> None:
                held.pop(self.path, None)
                self._answer(204)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


def webhook_place(folder: Path, other: Demand) -> Place:
    """A server of resources."""
    server = Resources()
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    settings = {"kind": "webhook", "url": url + "/limits/{broker}/{queue}/{tenant}"}
    return Place(settings, server, partial(written_over, demand=other), {"url": url + "/closed/{tenant}"})


PLACES: dict[str, Callable[[Path, Demand], Place]] = {
    "file": file_place,
    "redis_key": redis_place,
    "nats_kv": nats_kv_place,
    "nats_pause": nats_pause_place,
    "nats_max_ack_pending": nats_in_flight_place,
    "rabbitmq_policy": rabbitmq_place,
    "rabbitmq_shovel": rabbitmq_shovel_place,
    "kafka_quota": kafka_place,
    "kafka_topic": kafka_topic_place,
    "webhook": webhook_place,
}


@contextmanager
def serving(kind: str, folder: Path, other: Demand) -> Iterator[Place]:
    """The server of one kind, and the password that its settings name; it goes again unless others have it, too."""
    with patch.dict(os.environ, {PASSWORD: RabbitServer.password}):
        found = PLACES[kind](folder / "server", other)
        try:
            yield found
        finally:
            if found.server is not None and not found.shared:
                found.server.stop()
