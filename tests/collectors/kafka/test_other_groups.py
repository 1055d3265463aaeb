"""Share groups and streams groups: what their coordinator tells of them, by hand and from a real broker."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from brokers.errors import ConnectionLost
from brokers.kafka.wire.codec import END, Reader, array, text
from collectors.kafka.wire.groups import Committed, Members
from collectors.kafka.wire.others import (
    read_share_members,
    read_share_offsets,
    read_streams_members,
)
from tests.collectors.kafka.reading import read, settings
from tests.collectors.kafka.streams import StreamsMember
from tests.support.facts import proves
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

NONE, NULL = array(()), b"\xff"


def assigned(*topics: str) -> bytes:
    return array(bytes(16) + text(topic) + array([struct.pack(">i", 0)]) + END for topic in topics) + END


def described(name: str, body: bytes, error: int = 0) -> bytes:
    head = struct.pack(">h", error) + b"\0" + text(name) + text("Stable") + struct.pack(">ii", 3, 3)
    return struct.pack(">i", 0) + array([head + body + struct.pack(">i", 0) + END]) + END


def share_members(*members: bytes) -> bytes:
    return described("pool", text("simple") + array(members))


def share_member(*topics: str) -> bytes:
    told = text("m") + b"\0" + struct.pack(">i", 3) + text("client") + text("/127.0.0.1")
    return told + array(map(text, topics)) + assigned(*topics) + END


def streams_members(*members: bytes) -> bytes:
    pair = text("cleanup.policy") + text("delete") + END
    internal = text("app-repartition") + struct.pack(">ih", 2, 1) + array([pair]) + END
    first = text("0") + array([text("orders")]) + array([text("app-repartition")]) + NONE + NONE + END
    second = text("1") + NONE + NONE + array([internal]) + array([internal]) + END
    return described("app", b"\1" + struct.pack(">i", 1) + array([first, second]) + END + array(members))


def streams_member(*active: str, endpoint: bool = False) -> bytes:
    told = text("m") + struct.pack(">i", 3) + b"\0\0" + text("client") + text("/127.0.0.1")
    told += struct.pack(">i", 1) + text("process")
    told += b"\1" + text("host") + struct.pack(">H", 65000) + END if endpoint else NULL
    told += array([text("zone") + text("a") + END])
    told += array([text("0") + struct.pack(">iq", 0, 7) + END]) + NONE
    tasks = array(text(name) + array([struct.pack(">i", 0)]) + END for name in active) + NONE + NONE + END
    return told + tasks + tasks + b"\0" + END


def share_offsets(*partitions: bytes, error: int = 0) -> bytes:
    topic = text("jobs") + bytes(16) + array(partitions) + END
    return struct.pack(">i", 0) + array([text("pool") + array([topic]) + struct.pack(">h", error) + b"\0" + END]) + END


def share_partition(partition: int, start: int, lag: int | None, error: int = 0) -> bytes:
    told = struct.pack(">iqi", partition, start, 0) + (b"" if lag is None else struct.pack(">q", lag))
    return told + struct.pack(">h", error) + b"\0" + END


def test_members_of_a_share_group_are_counted_by_their_topics() -> None:
    answer = share_members(share_member("jobs"), share_member("jobs", "mail"))
    assert read_share_members(Reader(answer)) == {"pool": Members(2, {"jobs": 2, "mail": 1})}
    assert read_share_members(Reader(described("pool", text("") + NONE, error=30))) == {"pool": 30}


def test_members_of_a_streams_group_are_counted_by_what_their_active_tasks_read() -> None:
    answer = streams_members(streams_member("0", "1"), streams_member("1", endpoint=True), streams_member())
    assert read_streams_members(Reader(answer)) == {"app": Members(3, {"orders": 1, "app-repartition": 2})}
    untold = described("app", NULL + NONE, error=16)
    assert read_streams_members(Reader(untold)) == {"app": 16}


def test_where_a_share_group_is_and_what_waits_there_are_told_apart() -> None:
    places = share_partition(0, 40, 7), share_partition(1, -1, -1), share_partition(2, 5, -1, error=29)
    told = Committed(0, {"jobs": {0: 40, 1: -1, 2: 5}}, {("jobs", 2): 29}, {("jobs", 0): 7})
    assert read_share_offsets(Reader(share_offsets(*places)), 1) == {"pool": told}
    older = share_offsets(share_partition(0, 40, None), error=14)  # before Kafka 4.2 no lag is told
    assert read_share_offsets(Reader(older), 0) == {"pool": Committed(14, {"jobs": {0: 40}})}


@pytest.mark.parametrize(
    ("whole", "decode"),
    [
        (share_members(share_member("jobs")), read_share_members),
        (streams_members(streams_member("0")), read_streams_members),
        (share_offsets(share_partition(0, 40, 7)), lambda answer: read_share_offsets(answer, 1)),
    ],
    ids=["share members", "streams members", "share offsets"],
)
def test_an_answer_that_is_cut_anywhere_is_a_lost_connection(whole: bytes, decode: Any) -> None:
    decode(Reader(whole))
    for length in range(len(whole) - 1):
        with pytest.raises(ConnectionLost):
            decode(Reader(whole[:length]))


def begin_at_the_start(server: KafkaServer, group: str) -> None:
    """Let a share group begin with the first record that there is."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = server.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def share_consumer(server: KafkaServer, group: str) -> ShareConsumer:
    config = {"bootstrap.servers": server.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    return ShareConsumer(config)


@proves("kafka", "consumers", "of share groups")
def test_a_share_group_has_a_depth_an_age_and_members_and_what_is_done_behind_its_start_does_not_wait(
    kafka_server: KafkaServer,
) -> None:
    kafka_server.make_topics("shared")
    kafka_server.produce("shared", 10, timestamp=round((time.time() - 60) * 1000))
    begin_at_the_start(kafka_server, "pool")
    consumer = share_consumer(kafka_server, "pool")
    chosen = settings(kafka_server.bootstrap, "shared", groups={"include": ["pool"]})
    begins = settings(kafka_server.bootstrap, "shared", groups={"include": ["pool"]}, uncommitted={"pool": "earliest"})
    try:
        consumer.subscribe(["shared"])
        taken: list[Any] = []

        def take() -> bool:
            taken.extend(consumer.poll(1.0) or [])
            return bool(taken)

        wait_until(take, "records", seconds=60)
        found = read(chosen)["shared", "pool"]  # where it begins is told from its first acknowledgement on
        assert (found.consumers, found.depth, found.state) == (1, None, "Stable")
        assert found.unavailable["depth"] == "nothing is committed"
        found = read(begins)["shared", "pool"]
        assert (found.consumers, found.depth, found.state) == (1, 10, "Stable")
        assert found.oldest_age_seconds is not None and 55 < found.oldest_age_seconds < 600
        assert "share group" in found.unavailable["in_flight"]
        for message in taken[1:]:
            consumer.acknowledge(message)
        consumer.commit_sync(timeout=20)
        wait_until(lambda: read(chosen)["shared", "pool"].depth == 11 - len(taken), "what is done to be told")
    finally:
        consumer.close()
    wait_until(lambda: read(chosen)["shared", "pool"].consumers == 0, "the member to have left")
    assert read(chosen)["shared", "pool"].state == "Empty"


@proves("kafka", "consumers", "of streams groups")
def test_a_streams_group_is_sampled_with_its_members(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("streamed", partitions=2)
    kafka_server.produce("streamed", 6)
    member = StreamsMember(kafka_server, "app", ["streamed"])
    try:
        member.join()
        member.commit("streamed", 0, 2)
        member.commit("streamed", 1, 0)
        found = read(settings(kafka_server.bootstrap, "streamed", groups={"include": ["app"]}))["streamed", "app"]
        assert (found.consumers, found.depth, found.state) == (1, 4, "Stable")
    finally:
        member.close()
