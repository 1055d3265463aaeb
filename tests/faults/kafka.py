"""Trouble on Kafka: groups that are lost, stuck or half known, times of another unit, a node that is not trusted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from tests.faults.fault import BROKER, Fault, Row, Scene, long_ago, nothing
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

_QUICK = {"interval": 0.2, "window": 3}
_FOR_EVER = {"retention.ms": "-1"}


@dataclass
class _Cluster:
    """``first`` runs; ``second`` joins it as the last of all, so that it coordinates no group."""

    first: KafkaServer
    second: KafkaServer
    ended_with_it: ExitStack
    producers: list[Producer] = field(default_factory=list)  # a transaction ends with its producer


@contextmanager
def _cluster(folder: Path) -> Iterator[_Cluster]:
    with ExitStack() as held:
        first = held.enter_context(KafkaServer(folder / "first"))
        yield _Cluster(first, KafkaServer(folder / "second", joining=first), held)


def _settings(cluster: _Cluster) -> Row:
    common = {"kind": "kafka", "tls": {"enabled": True, "ca": str(cluster.first.certificate)}}
    watched = {"read_committed": ["ledger"], "uncommitted": {"beginners": "earliest"}, "status": _QUICK}
    return {
        "brokers": [
            {"name": BROKER, "bootstrap": cluster.first.tls_bootstrap, **common, **watched},
            {"name": "refused", "bootstrap": cluster.second.tls_bootstrap, **common},
        ]
    }


def _member(cluster: _Cluster, group: str, *topics: str) -> None:
    """A consumer that is assigned all of ``topics``, and then does nothing."""
    client = {"bootstrap.servers": cluster.first.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**client, "log_level": 0})
    cluster.ended_with_it.callback(consumer.close)
    consumer.subscribe(list(topics))

    def assigned() -> bool:
        consumer.poll(0.05)
        return {place.topic for place in consumer.assignment()} == set(topics)

    wait_until(assigned, f"{group} to have its partitions", seconds=60)


def _overtaken(cluster: _Cluster) -> Callable[[], None]:
    server = cluster.first
    server.make_topics("orders")
    server.produce("orders", 500)
    server.commit("billing", "orders", {0: 40})
    server.delete_records("orders", 500)
    return nothing


def _hung(cluster: _Cluster) -> Callable[[], None]:
    server = cluster.first
    server.make_topics("payments")
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "hangs", "log_level": 0})
    cluster.producers.append(producer)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("payments", b"x", partition=0, timestamp=long_ago())
    assert producer.flush(60) == 0  # it never ends
    server.commit("ledger", "payments", {0: 0})
    return lambda: server.produce("payments", 5)


def _never_committed(cluster: _Cluster) -> Callable[[], None]:
    cluster.first.make_topics("signups", "greetings")
    cluster.first.produce("signups", 3)
    _member(cluster, "newcomers", "signups", "greetings")
    return nothing


def _partly_committed(cluster: _Cluster) -> Callable[[], None]:
    server = cluster.first
    server.make_topics("mails", partitions=3)
    for partition in range(3):
        server.produce("mails", 5, partition=partition, timestamp=long_ago())
    for group in ("senders", "beginners"):
        server.commit(group, "mails", {0: 2, 1: 2})
    return nothing


def _other_unit(cluster: _Cluster) -> Callable[[], None]:
    cluster.first.make_topics("clicks", config=_FOR_EVER)
    cluster.first.produce("clicks", 7, timestamp=round(time.time()))
    cluster.first.commit("counters", "clicks", {0: 5})
    return nothing


def _hanging_member(cluster: _Cluster) -> Callable[[], None]:
    server = cluster.first
    server.make_topics("invoices")
    server.produce("invoices", 10, timestamp=long_ago())
    server.commit("accounts", "invoices", {0: 2})
    _member(cluster, "accounts", "invoices")
    return nothing


def _shrinking(cluster: _Cluster) -> Callable[[], None]:
    server = cluster.first
    server.make_topics("readings")
    server.produce("readings", 100, timestamp=long_ago())
    server.commit("meters", "readings", {0: 40})
    server.delete_records("readings", 38)
    return nothing


def _untrusted_node(cluster: _Cluster) -> Callable[[], None]:
    """The second broker's certificate is one of its own; it leads one partition of two."""
    server, admin = cluster.first, cluster.first.admin()
    cluster.ended_with_it.enter_context(cluster.second)
    wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == 2, "both brokers", seconds=60)
    admin.create_topics([NewTopic("parcels", 2, replica_assignment=[[1], [2]])])["parcels"].result(30)

    def led() -> bool:
        topic: Any = admin.list_topics(timeout=5).topics.get("parcels")
        return topic is not None and sorted(one.leader for one in topic.partitions.values()) == [1, 2]

    wait_until(led, "both partitions to be led", seconds=60)
    for partition in range(2):
        server.produce("parcels", 5, partition=partition, timestamp=long_ago())
    server.commit("shipping", "parcels", {0: 3, 1: 3})
    return nothing


SCENE = Scene(
    "kafka",
    _cluster,
    _settings,
    (
        Fault(
            "retention-overtakes-a-group",
            "Kafka's retention overtakes a group that nobody is a member of any more: committed 40 of 500, all deleted",
            _overtaken,
            "orders",
            lambda row: row["status"] == "LOST",
            ("subscriber", "depth", "consumers", "status", "retention_margin"),
            {"subscriber": "billing", "depth": 0, "consumers": 0, "status": "LOST", "retention_margin": 0},
            frozenset({"ConsumerNotOk"}),
            ("sojourn_queue_lost_total{", "sojourn_queue_retention_margin{"),
            page=("billing of orders: LOST",),
        ),
        Fault(
            "retention-comes-near",
            "Kafka's retention is two messages from deleting what a group has not read for twenty minutes",
            _shrinking,
            "readings",
            lambda row: row["status"] == "STOP" and row["drain_state"] == "stalled",
            ("subscriber", "depth", "oldest_age_seconds", "status", "retention_margin", "mode"),
            {"subscriber": "meters", "depth": 60, "status": "STOP", "retention_margin": 2, "mode": "backlogged"},
            frozenset({"RetentionNear", "QueueBacklogged", "NoConsumers", "ConsumerNotOk"}),
            ("sojourn_queue_retention_margin{", "sojourn_queue_oldest_age_seconds{"),
            page=("Retention is 2 messages from deleting",),
        ),
        Fault(
            "consumer-hangs",
            "A Kafka consumer keeps its membership and does nothing: its group is stable, its offset stands",
            _hanging_member,
            "invoices",
            lambda row: row["status"] == "STALL" and row["drain_state"] == "stalled",
            ("subscriber", "depth", "consumers", "status", "drain_state"),
            {"subscriber": "accounts", "depth": 8, "consumers": 1, "status": "STALL", "drain_state": "stalled"},
            frozenset({"ConsumerNotOk", "NothingAcknowledged", "QueueBacklogged"}),
            ("sojourn_queue_depth{", "sojourn_queue_consumers{"),
            page=("accounts of invoices: STALL",),
        ),
        Fault(
            "group-has-committed-nothing",
            "A stable Kafka group with a member on two topics that has committed nothing: what waits is not known",
            _never_committed,
            "signups",
            lambda row: row["subscriber"] == "newcomers" and row["consumers"] == 1,
            ("subscriber", "depth", "consumers", "status"),
            {"subscriber": "newcomers", "depth": None, "consumers": 1, "status": None},
            metrics=("sojourn_queue_consumers{", "sojourn_queue_unknown_partitions{"),
            absent=("sojourn_queue_depth{",),
            page=("the broker tells no depth",),
            samples="SELECT DISTINCT queue, subscriber, depth, unavailable['depth'] AS why FROM queue_samples "
            "WHERE subscriber = 'newcomers' ORDER BY queue",
            told=("greetings", "why = nothing is committed"),
        ),
        Fault(
            "partition-without-a-commit",
            "One of three partitions is uncommitted: for one group it is unknown what waits there, for the other "
            "`uncommitted` says so",
            _partly_committed,
            "mails",
            lambda row: row["status"] == "STOP",
            ("subscriber", "depth", "consumers", "status"),
            {"subscriber": "senders", "depth": None, "consumers": 0, "status": "STOP"},
            frozenset({"ConsumerNotOk", "NoConsumers", "QueueBacklogged"}),
            ("sojourn_queue_depth{", "sojourn_queue_unknown_partitions{"),
            page=("mails",),
            samples="SELECT DISTINCT subscriber, depth, unknown_partitions, unavailable['unknown_partitions'] AS why "
            "FROM queue_samples WHERE queue = 'mails' ORDER BY subscriber",
            told=("beginners, depth = 11, unknown_partitions = 0", "senders, depth = 6, unknown_partitions = 1"),
        ),
        Fault(
            "times-in-another-unit",
            "A producer that gives its records' times in seconds rather than milliseconds",
            _other_unit,
            "clicks",
            lambda row: row["status"] == "STOP" and row["drain_state"] == "stalled",
            ("subscriber", "depth", "oldest_age_seconds", "status", "mode"),
            {"subscriber": "counters", "depth": 2, "oldest_age_seconds": None, "status": "STOP", "mode": None},
            frozenset({"ConsumerNotOk", "NoConsumers"}),
            ("sojourn_queue_depth{",),
            absent=("sojourn_queue_oldest_age_seconds{",),
            page=("counters of clicks: STOP",),
            samples="SELECT DISTINCT depth, oldest_age_seconds, unavailable['oldest_age_seconds'] AS why "
            "FROM queue_samples WHERE queue = 'clicks'",
            told=("is its time in milliseconds?",),
        ),
        Fault(
            "transaction-hangs",
            "A transaction hangs for twenty minutes on a topic that a group reads with isolation.level=read_committed",
            _hung,
            "payments",
            lambda row: row["status"] == "BLOCKED",
            ("subscriber", "depth", "status", "transactional_lag", "transactional_age_seconds"),
            {"subscriber": "ledger", "depth": 0, "status": "BLOCKED"},
            frozenset({"ConsumerNotOk", "TransactionHangs"}),
            ("sojourn_queue_transactional_lag{", "sojourn_queue_transactional_age_seconds{"),
            page=("BLOCKED", "transaction on payments hangs"),
        ),
        Fault(
            "node-is-not-trusted",
            "The certificate of one of two Kafka brokers is not trusted: its partitions are unknown, the other's are "
            "told; and a cluster of which no broker is trusted keeps this one from nothing",
            _untrusted_node,
            "parcels",
            lambda row: row["status"] == "STOP",
            ("subscriber", "depth", "consumers", "status"),
            {"subscriber": "shipping", "depth": None, "consumers": 0, "status": "STOP"},
            frozenset({"ConsumerNotOk", "QueueBacklogged"}),
            ("sojourn_queue_depth{", "sojourn_queue_unknown_partitions{", "sojourn_collector_success{"),
            page=("shipping of parcels: STOP",),
            samples="SELECT depth, unknown_partitions, unavailable['unknown_partitions'] AS why "
            "FROM queue_samples WHERE queue = 'parcels' ORDER BY sampled_at DESC LIMIT 1",
            told=("depth = 2, unknown_partitions = 1", "is not trusted"),
        ),
    ),
)
