"""Trouble on Redis, and what only seems to be: Celery's queues, logs, one queue of two names, a lost node."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from kombu import Exchange, Queue

from tests.apps.run_apps import finish, start
from tests.collectors.receive.support import BEGIN, request_of
from tests.collectors.redis import making
from tests.faults.fault import BROKER, OLD_SECONDS, Fault, Row, Scene, long_ago, nothing, started
from tests.support.ports import free_ports
from tests.support.redis import RedisCluster, RedisServer
from tests.support.waiting import PATIENCE


@dataclass(frozen=True)
class _World:
    """A Redis server, and where the receiver listens for spans meanwhile."""

    server: RedisServer
    otlp: int
    folder: Path

    @property
    def receiver(self) -> str:
        return f"http://127.0.0.1:{self.otlp}"


@contextmanager
def _world(folder: Path) -> Iterator[_World]:
    with RedisServer(folder) as server:
        yield _World(server, free_ports(1)[0], folder)


def _settings(world: _World) -> Row:
    receive = {"enabled": True, "grpc_port": 0, "http_port": world.otlp}
    return {"brokers": [{"kind": "redis", "name": BROKER, "url": world.server.url}], "receive": receive}


def _unconsumed(world: _World) -> Callable[[], None]:
    sent = {"enqueued_at": time.time() - OLD_SECONDS}
    with making.app.connection_for_write(world.server.url) as connection:
        for _ in range(500):
            making.slow.apply_async(queue="tasks", headers=sent, connection=connection)
    return nothing


def _scheduled(world: _World) -> Callable[[], None]:
    sent = {"enqueued_at": time.time() - OLD_SECONDS}
    with making.app.connection_for_write(world.server.url) as connection:
        for _ in range(5):
            making.slow.apply_async(queue="later", countdown=3600, headers=sent, connection=connection)
    return nothing


def _by_pattern(world: _World) -> Callable[[], None]:
    news = Exchange("news", type="topic")
    with making.app.connection_for_write(world.server.url) as connection:
        Queue("digest", news, routing_key="news.eu.*")(connection.default_channel).declare()
        with connection.Producer() as producer:
            for key in ("news.eu.fr", "news.eu.de"):
                producer.publish({}, exchange=news, routing_key=key)
    return nothing


def _log(world: _World) -> Callable[[], None]:
    with world.server.client() as client:
        for number in range(1000):
            client.xadd("audit", {"n": number}, id=f"{1_600_000_000_000 + number}-0")
    return nothing


def _once(world: _World, tell: Callable[[], None]) -> Callable[[], None]:
    """``tell``, once the receiver listens."""
    told = False

    def again() -> None:
        nonlocal told
        if told:
            return
        try:
            socket.create_connection(("127.0.0.1", world.otlp), timeout=5).close()
        except OSError:
            return
        told = True
        tell()

    return again


def _application(world: _World) -> Callable[[], None]:
    """Ordinary Celery under OpenTelemetry's launcher: its spans go to the receiver, its tasks to Redis."""
    journal = world.folder / "journal"
    return _once(
        world,
        lambda: finish(start("celery_app", "produce", world.server.url, journal, 20, otlp=world.receiver)),
    )


def _sampled_traces(world: _World) -> Callable[[], None]:
    """Ten messages in sampled traces, of which one in four was (W3C's threshold ``c``)."""

    def tell() -> None:
        sent = time.time_ns() / 1e6 - BEGIN / 1e6 - 2000
        spans = []
        for trace in random.Random(1).sample(range(1, 1 << 60), 10):
            name = {"trace": trace, "messaging__destination__name": "trail"}
            spans.append(("send", 1, {**name, "at": sent}))
            spans.append(("process", 2, {**name, "parent": 1, "remote": True, "at": sent + 500}))
        request = request_of(*spans)
        for span in request.resource_spans[0].scope_spans[0].spans:
            span.trace_state = "ot=th:c"
        headers = {"content-type": "application/x-protobuf"}
        body = request.SerializeToString()
        taken = httpx.post(f"{world.receiver}/v1/traces", content=body, headers=headers, timeout=10 * PATIENCE)
        assert taken.status_code == 200, taken.text

    return _once(world, tell)


SCENE = Scene(
    "redis",
    _world,
    _settings,
    (
        Fault(
            "celery-without-workers",
            "500 Celery tasks on Redis and no worker: nothing leaves",
            _unconsumed,
            "tasks",
            lambda row: row["depth"] == 500 and row["drain_state"] == "stalled",
            ("depth", "in_flight", "oldest_age_seconds", "mode", "drain_state"),
            {"depth": 500, "in_flight": 0, "mode": "backlogged", "drain_state": "stalled"},
            frozenset({"NothingAcknowledged", "QueueBacklogged"}),
            ("sojourn_queue_depth{", "sojourn_queue_oldest_age_seconds{"),
            page=("Nothing of tasks is acknowledged, with 500 messages waiting",),
        ),
        Fault(
            "celery-eta",
            "Five Celery tasks, sent twenty minutes ago with a countdown of an hour: not due, so nothing waits",
            _scheduled,
            "later",
            lambda row: row["delayed"] == 5,
            ("depth", "delayed", "oldest_age_seconds", "mode", "drain_state"),
            {"depth": 0, "delayed": 5, "oldest_age_seconds": None, "mode": "fast", "drain_state": "idle"},
            metrics=("sojourn_queue_delayed{", "sojourn_queue_oldest_age_seconds{"),
            page=("Nothing waits, by the broker's own count",),
        ),
        Fault(
            "celery-by-pattern",
            "A Celery queue that is bound to a topic exchange by the pattern `news.eu.*`",
            _by_pattern,
            "digest",
            lambda row: row["depth"] == 2 and row["drain_state"] == "stalled",
            ("broker", "depth", "in_flight", "drain_state"),
            {"broker": BROKER, "depth": 2, "in_flight": 0, "drain_state": "stalled"},
            frozenset({"NothingAcknowledged"}),
            ("sojourn_queue_depth{",),
            page=("Nothing of digest is acknowledged, with 2 messages waiting",),
        ),
        Fault(
            "redis-log",
            "A Redis stream that no group reads: a log, five years old",
            _log,
            "audit",
            lambda row: row["queue"] == "audit",
            ("depth", "oldest_age_seconds", "mode", "drain_state"),
            {"depth": None, "oldest_age_seconds": None, "mode": None, "drain_state": None},
            absent=("sojourn_queue_depth{", "sojourn_queue_oldest_age_seconds{"),
            page=("audit", "the broker tells no depth"),
        ),
        Fault(
            "one-queue-one-name",
            "An unmodified Celery application: its spans and the samples of Redis are one row",
            _application,
            "orders",
            lambda row: row["broker"] == BROKER and row["depth"] == 20 and 0.95 <= (row["coverage"] or 0) <= 1.05,
            ("broker", "depth", "in_flight", "coverage"),
            {"broker": BROKER, "depth": 20, "in_flight": 0, "coverage": 1.0},
            metrics=("sojourn_queue_depth{", "sojourn_messages_total{"),
            page=("events cover 100 %",),
        ),
        Fault(
            "sampled-traces",
            "Ten messages whose traces were sampled at one in four: counts are of forty, and called estimates",
            _sampled_traces,
            "trail",
            lambda row: row["estimated"] is not None,
            ("broker", "in_flight", "estimated"),
            {"broker": "nats", "in_flight": 0, "estimated": 120},
            metrics=("sojourn_messages_total{",),
            page=("Estimates: sampled traces stand for those that were not",),
        ),
    ),
    events=True,
)


def _on_every_node(cluster: RedisCluster) -> Callable[[], None]:
    """A stream with a group on each of the nodes."""
    with cluster.client() as client:
        for name in ("returns", "refunds", "parcels"):
            for number in range(5):
                client.xadd(name, {"n": number}, id=f"{long_ago()}-{number}")
            client.xgroup_create(name, "workers", id="0")
    return nothing


CLUSTER = Scene(
    "redis-cluster",
    lambda folder: started(RedisCluster(folder)),
    lambda cluster: {"brokers": [{"kind": "redis", "name": BROKER, "url": cluster.nodes[0].url}]},
    (
        Fault(
            "node-of-a-redis-cluster-is-lost",
            "A node of a Redis Cluster is lost: the queues there are unknown, not zero",
            _on_every_node,
            "refunds",
            lambda row: row["depth"] is None,
            ("subscriber", "depth", "mode", "drain_state"),
            {"subscriber": "workers", "depth": None},
            metrics=("sojourn_collector_unread_queues{",),
            absent=("sojourn_queue_depth{",),
            page=("refunds",),
            samples="SELECT queue, depth, unavailable['depth'] AS why FROM queue_samples WHERE queue = 'refunds' "
            "ORDER BY sampled_at DESC LIMIT 1",
            told=("depth = null", "NODEDOWN"),
            strikes=lambda cluster: cluster.nodes[1].kill(),
        ),
        Fault(
            "other-nodes-of-the-redis-cluster",
            "The queues on the other nodes of that Redis Cluster go on",
            lambda cluster: nothing,
            "returns",
            lambda row: row["depth"] == 5 and row["drain_state"] == "stalled",
            ("subscriber", "depth", "consumers", "mode", "drain_state"),
            {"subscriber": "workers", "depth": 5, "consumers": 0, "mode": "backlogged", "drain_state": "stalled"},
            frozenset({"NoConsumers", "QueueBacklogged"}),
            ("sojourn_queue_depth{",),
            page=("Nobody consumes returns",),
        ),
    ),
)
