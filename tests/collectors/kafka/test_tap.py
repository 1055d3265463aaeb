"""The header tap on a real broker: every record's life once, whatever comes between."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from collectors.settings import CollectSettings
from lake.store import Lake
from tests.collectors.support import running, start
from tests.support.facts import proves
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

TENANTS = 3


def settings(server: KafkaServer, *topics: Any, **changes: Any) -> CollectSettings:
    """A tap of ``topics``, without a sampler."""
    broker = {"kind": "kafka", "name": "k", "bootstrap": server.bootstrap, "sample": False}
    tap = {"topics": list(topics), "poll_interval": 0.05, **changes}
    return CollectSettings.model_validate({"brokers": [broker | {"tap": tap}], "flush_interval": 0.05})


def name() -> str:
    return f"tap-{uuid.uuid4().hex[:8]}"


def produce(server: KafkaServer, topic: str, number: int, *, partitions: int = 2, transaction: str = "") -> None:
    """Records of some tenants, dealt to the partitions; "commit" or "abort" sends them in a transaction."""
    config: dict[str, Any] = {"bootstrap.servers": server.bootstrap, "log_level": 0}
    producer = Producer(config | ({"transactional.id": name()} if transaction else {}))
    if transaction:
        producer.init_transactions(20)
        producer.begin_transaction()
    for index in range(number):
        tenant = f"t{index % TENANTS}".encode()
        producer.produce(topic, b"x", partition=index % partitions, headers=[("tenant", tenant)])
    assert producer.flush(20) == 0
    if transaction:
        (producer.commit_transaction if transaction == "commit" else producer.abort_transaction)(20)


def events(root: Path) -> list[dict[str, Any]]:
    return list(Lake(root).read("message_events").to_pylist())


def kinds(root: Path) -> Counter[str]:
    """How many events of each type; AssertionError for one that is there twice."""
    rows = Lake(root).read("message_events", columns=["event_id", "event_type"])
    assert len(set(rows.column("event_id").to_pylist())) == rows.num_rows
    return Counter(rows.column("event_type").to_pylist())


def wait_for(root: Path, seconds: float = 40, **wanted: int) -> None:
    """Wait until exactly so many events of these types are there, and no other."""

    def there() -> bool:
        return (root / "bronze").exists() and kinds(root) == Counter(wanted)

    try:
        wait_until(there, str(wanted), seconds=seconds)
    except AssertionError:
        raise AssertionError(f"{dict(kinds(root))} instead of {wanted}") from None


@proves("kafka", "per tenant", "tap")
def test_records_arrive_and_end_once_across_restarts(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    kafka_server.make_topics(topic, partitions=2)
    produce(kafka_server, topic, 20)
    kafka_server.commit("g", topic, {0: 4, 1: 2})
    chosen = settings(kafka_server, {"name": topic, "groups": ["g"]})
    with running(chosen, root):
        wait_for(root, enqueued=14)  # from where the group is: its own past is not told
        kafka_server.commit("g", topic, {0: 6, 1: 6})
        wait_for(root, enqueued=14, received=6, completed=6)
    produce(kafka_server, topic, 10)
    kafka_server.commit("g", topic, {0: 15, 1: 10})
    with running(chosen, root):
        wait_for(root, enqueued=24, received=19, completed=19)
    found = events(root)
    ended = {row["message_id"] for row in found if row["event_type"] == "completed"}
    assert ended == {f"{topic}-0-{n}" for n in range(4, 15)} | {f"{topic}-1-{n}" for n in range(2, 10)}
    assert {row["tenant"] for row in found} == {"t0", "t1", "t2"}
    arrived = {row["message_id"]: row for row in found if row["event_type"] == "enqueued"}
    for row in found:
        if row["event_type"] == "completed":
            begun = arrived[row["message_id"]]
            assert row["tenant"] == begun["tenant"]
            assert row["enqueued_at"] == begun["enqueued_at"]
            assert row["occurred_at"] >= begun["occurred_at"]


def test_partitions_and_topics_that_come_later_are_told_from_their_first_record(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    grows, comes, root = name(), name(), tmp_path / "lake"
    kafka_server.make_topics(grows, partitions=1)
    produce(kafka_server, grows, 3, partitions=1)
    with running(settings(kafka_server, {"name": grows, "groups": ["g"]}, comes, start="earliest"), root):
        wait_for(root, enqueued=3)
        admin = kafka_server.admin()
        admin.create_partitions([NewPartitions(grows, 2)])[grows].result(20)
        kafka_server.make_topics(comes)
        wait_until(lambda: len(admin.list_topics(grows, timeout=5).topics[grows].partitions) == 2, "the partition")
        produce(kafka_server, grows, 4, partitions=2)
        produce(kafka_server, comes, 2, partitions=1)
        wait_for(root, enqueued=9)
        kafka_server.commit("g", grows, {0: 5, 1: 2})
        wait_for(root, enqueued=9, received=7, completed=7)


def test_a_topic_that_is_made_anew_takes_its_unread_records_with_it(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    kafka_server.make_topics(topic)
    produce(kafka_server, topic, 5, partitions=1)
    kafka_server.commit("g", topic, {0: 0})
    chosen = settings(kafka_server, {"name": topic, "groups": ["g"]})
    with running(chosen, root):
        wait_for(root, enqueued=5)
        kafka_server.commit("g", topic, {0: 2})
        wait_for(root, enqueued=5, received=2, completed=2)
        admin = kafka_server.admin()
        admin.delete_topics([topic])[topic].result(20)
        wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, "the topic to be gone")
        kafka_server.make_topics(topic)
        produce(kafka_server, topic, 3, partitions=1)
        wait_for(root, enqueued=8, received=2, completed=2, expired=3)
        admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, "the topic to be gone")
    kafka_server.make_topics(topic)
    produce(kafka_server, topic, 1, partitions=1)
    with running(chosen, root):  # another process, which was not there when it happened
        wait_until(lambda: kinds(root)["enqueued"] == 9, "the newest topic's record", seconds=40)
    assert {row["message_id"] for row in events(root) if row["event_type"] == "enqueued"} == {
        *(f"{topic}-0-{n}" for n in range(5)),
        *(f"1:{topic}-0-{n}" for n in range(3)),
        f"2:{topic}-0-0",
    }


def test_records_removed_unread_are_expired_or_counted_as_lost(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    kafka_server.make_topics(topic)
    produce(kafka_server, topic, 10, partitions=1)
    kafka_server.commit("g", topic, {0: 0})
    chosen = settings(kafka_server, {"name": topic, "groups": ["g"]})
    with running(chosen, root):
        wait_for(root, enqueued=10)
        _remove(kafka_server, topic, below=4)
        wait_for(root, enqueued=10, expired=4)
    produce(kafka_server, topic, 10, partitions=1)
    _remove(kafka_server, topic, below=15)
    with running(chosen, root):
        wait_for(root, enqueued=15, expired=4)
        kafka_server.commit("g", topic, {0: 20})
        wait_for(root, enqueued=15, expired=4, received=5, completed=5)
    (lost,) = Lake(root).read("rejected_records").to_pylist()
    assert lost["count"] == 11  # five never read; six to be read again, for the group had not read them
    assert "retention" in lost["reason"]


def test_records_removed_right_after_they_were_read_have_not_expired(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    kafka_server.make_topics(topic)
    produce(kafka_server, topic, 10, partitions=1)
    kafka_server.commit("g", topic, {0: 0})
    with running(settings(kafka_server, {"name": topic, "groups": ["g"]}, poll_interval=5), root):
        wait_for(root, enqueued=10)
        kafka_server.commit("g", topic, {0: 4})  # as Kafka Streams does with what it has repartitioned
        _remove(kafka_server, topic, below=4)
        wait_for(root, enqueued=10, received=4, completed=4)


def _remove(server: KafkaServer, topic: str, *, below: int) -> None:
    from confluent_kafka import TopicPartition

    admin = server.admin()
    for future in admin.delete_records([TopicPartition(topic, 0, below)]).values():
        future.result(20)


def test_what_a_transaction_aborted_never_was(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    kafka_server.make_topics(topic)
    produce(kafka_server, topic, 3, partitions=1, transaction="commit")  # offsets 0–2, its marker 3
    produce(kafka_server, topic, 4, partitions=1, transaction="abort")  # offsets 4–7, its marker 8
    produce(kafka_server, topic, 2, partitions=1, transaction="commit")  # offsets 9–10, its marker 11
    kafka_server.commit("g", topic, {0: 12})
    chosen = settings(kafka_server, {"name": topic, "groups": ["g"]}, start="earliest")
    with running(chosen, root):
        wait_for(root, enqueued=5)
        produce(kafka_server, topic, 2, partitions=1)
        kafka_server.commit("g", topic, {0: 14})
        wait_for(root, enqueued=7, received=2, completed=2)


def test_the_tap_joins_no_group_and_commits_nothing(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    kafka_server.make_topics(topic)
    produce(kafka_server, topic, 3, partitions=1)
    before = _groups(kafka_server)
    with running(settings(kafka_server, {"name": topic, "groups": ["nobody-yet"]}, start="earliest"), root):
        wait_for(root, enqueued=3)
        time.sleep(0.3)
        assert _groups(kafka_server) == before
    assert _groups(kafka_server) == before


def _groups(server: KafkaServer) -> set[str]:
    admin = server.admin()
    return {group.group_id for group in admin.list_consumer_groups().result(20).valid}


def test_a_broker_that_was_away_is_followed_on(own_kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root = name(), tmp_path / "lake"
    own_kafka_server.make_topics(topic)
    produce(own_kafka_server, topic, 3, partitions=1)
    own_kafka_server.commit("g", topic, {0: 0})
    with running(settings(own_kafka_server, {"name": topic, "groups": ["g"]}), root):
        wait_for(root, enqueued=3)
        own_kafka_server.restart()
        produce(own_kafka_server, topic, 2, partitions=1)
        own_kafka_server.commit("g", topic, {0: 4})
        wait_for(root, enqueued=5, received=4, completed=4)


def test_killing_the_tap_at_any_instant_neither_loses_nor_doubles(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, root, chance = name(), tmp_path / "lake", random.Random(5)
    kafka_server.make_topics(topic, partitions=2)
    produce(kafka_server, topic, total := 10)
    kafka_server.commit("g", topic, {0: 0, 1: 0})
    chosen = settings(kafka_server, {"name": topic, "groups": ["g"]}, max_unfinished=1000)
    with running(chosen, root):
        wait_for(root, enqueued=total)
    for _ in range(3):
        tap = start(chosen, root)
        before = _version(root)
        for _ in range(4):
            produce(kafka_server, topic, 3000)
            total += 3000
            kafka_server.commit("g", topic, dict.fromkeys((0, 1), total // 2 - chance.randrange(1500)))
        wait_until(lambda: _version(root) > before, "a commit", seconds=60)  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.3))
        tap.kill()
        tap.wait()
    kafka_server.commit("g", topic, {0: total // 2, 1: total // 2})
    with running(chosen, root):
        wait_for(root, enqueued=total, received=total, completed=total, seconds=60)


def _version(root: Path) -> int:
    return Lake(root).version("message_events") if (root / "bronze" / "message_events" / "_delta_log").exists() else -1
