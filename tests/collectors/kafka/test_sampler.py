"""The sampler against a real broker: what is told is right, what is not told is null with a reason."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from brokers.errors import ConnectionLost
from collectors.kafka.source import KafkaSource
from tests.collectors.kafka.reading import by_name, read, read_once, settings, using
from tests.support.facts import proves
from tests.support.kafka import KafkaServer, prepare
from tests.support.waiting import wait_until

HOUR = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_sample_tells_depth_age_margin_and_totals_of_each_group(kafka_server: KafkaServer) -> None:
    prepare(kafka_server)
    found = read(settings(kafka_server.bootstrap, "orders", "events", "unread"))
    assert set(found) == {("orders", "billing"), ("events", "audit"), ("unread", None)}
    orders = found["orders", "billing"]
    assert (orders.depth, orders.published_total, orders.acked_total) == (4, 10, 0)
    assert (orders.unknown_partitions, orders.lost_total, orders.transactional_lag) == (0, 0, 0)
    assert (orders.consumers, orders.state, orders.retention_margin) == (0, "Empty", None)
    assert orders.oldest_age_seconds is not None and 0 < orders.oldest_age_seconds < 300
    events = found["events", "audit"]
    assert (events.depth, events.acked_total, events.retention_margin) == (3, 0, None)
    unread = found["unread", None]
    assert (unread.depth, unread.consumers, unread.published_total) == (None, 0, 2)


def test_the_age_is_that_of_the_record_at_the_committed_offset(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("ages", partitions=2)
    began = now_ms()
    for hours in (5, 3, 2):
        kafka_server.produce("ages", 1, timestamp=began - hours * HOUR)
    kafka_server.produce("ages", 1, partition=1, timestamp=began - 9 * HOUR)
    kafka_server.commit("ahead", "ages", {0: 2, 1: 1})
    kafka_server.commit("middle", "ages", {0: 1, 1: 1})
    kafka_server.commit("behind", "ages", {0: 1, 1: 0})
    kafka_server.commit("done", "ages", {0: 3, 1: 1})
    found = read(settings(kafka_server.bootstrap, "ages"))
    ages = {group: found["ages", group].oldest_age_seconds for group in ("ahead", "middle", "behind", "done")}
    taken = (found["ages", "ahead"].sampled_at // 1000 - began) / 1000
    assert ages["ahead"] == pytest.approx(2 * 3600 + taken)
    assert ages["middle"] == pytest.approx(3 * 3600 + taken)
    assert ages["behind"] == pytest.approx(9 * 3600 + taken)
    assert ages["done"] == 0.0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_record_is_found_within_a_large_batch(kafka_server: KafkaServer, codec: str) -> None:
    topic = f"batches-{codec}"
    kafka_server.make_topics(topic)
    began = now_ms()
    producer = Producer(
        {
            "bootstrap.servers": kafka_server.bootstrap,
            "compression.type": codec,
            "linger.ms": 2000,
            "batch.size": 900_000,
        }
    )
    for index in range(400):  # one batch of hundreds of kilobytes, more than is asked for at first
        producer.produce(topic, f"{index:04}".encode() * 400, timestamp=began - HOUR + index * 1000)
    assert producer.flush(20) == 0
    kafka_server.commit("reader", topic, {0: 123})
    kafka_server.commit("other", topic, {0: 321})
    found = read(settings(kafka_server.bootstrap, topic))
    for group, index in (("reader", 123), ("other", 321)):
        sample = found[topic, group]
        taken = (sample.sampled_at // 1000 - began) / 1000
        assert sample.depth == 400 - index
        assert sample.oldest_age_seconds == pytest.approx(3600 - index + taken)


def test_what_one_cycle_may_read_is_bounded_and_every_age_is_known_in_the_end_with_its_staleness(
    kafka_server: KafkaServer,
) -> None:
    kafka_server.make_topics("heavy", partitions=4)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap, "message.max.bytes": 1_000_000})
    for _ in range(2):
        for partition in range(4):
            producer.produce("heavy", bytes(900_000), partition=partition)
        assert producer.flush(20) == 0
    kafka_server.commit("reader", "heavy", dict.fromkeys(range(4), 0))

    async def work(source: KafkaSource) -> None:
        sample = (await read_once(source))["heavy", "reader"]
        assert (sample.depth, sample.oldest_age_seconds) == (8, None)
        assert "head_bytes" in sample.unavailable["oldest_age_seconds"]
        for _ in range(4):
            sample = (await read_once(source))["heavy", "reader"]
        assert sample.oldest_age_seconds is not None and sample.staleness_seconds == 0
        kafka_server.commit("reader", "heavy", dict.fromkeys(range(4), 1))
        sample = (await read_once(source))["heavy", "reader"]  # one of the four is read, of the others it is as it was
        assert (sample.depth, sample.oldest_age_seconds is None) == (4, False)
        assert sample.staleness_seconds is not None and sample.staleness_seconds > 0

    using(settings(kafka_server.bootstrap, "heavy", head_bytes=1 << 20), work)


def test_the_brokers_own_time_is_taken_where_the_topic_says_so(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("stamped", config={"message.timestamp.type": "LogAppendTime"})
    kafka_server.produce("stamped", 2, timestamp=now_ms() - 5 * HOUR)
    kafka_server.commit("reader", "stamped", {0: 1})
    age = read(settings(kafka_server.bootstrap, "stamped"))["stamped", "reader"].oldest_age_seconds
    assert age is not None and age < 300


def test_a_producers_clock_that_is_ahead_makes_no_negative_age_and_is_counted(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("future")
    kafka_server.produce("future", 1, timestamp=now_ms() + 2 * 60_000)
    kafka_server.commit("reader", "future", {0: 0})
    ahead: list[int] = []

    async def work() -> None:
        source = KafkaSource(settings(kafka_server.bootstrap, "future"), ahead.append)
        await source.open()
        await source.read()
        found = await read_once(source)  # the same record again: counted once
        await source.close()
        assert found["future", "reader"].oldest_age_seconds == 0.0

    asyncio.run(work())
    assert ahead == [1]


def test_nothing_committed_is_unknown_unless_there_is_nothing_to_read(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("partly", partitions=3)
    kafka_server.produce("partly", 4, partition=0)
    kafka_server.produce("partly", 4, partition=1)
    kafka_server.commit("reader", "partly", {0: 1})
    sample = read(settings(kafka_server.bootstrap, "partly"))["partly", "reader"]
    assert (sample.depth, sample.unknown_partitions, sample.published_total) == (3, 1, 8)
    assert sample.unavailable["unknown_partitions"] == "1 of 3 partitions are unknown; 1: nothing is committed"
    kafka_server.commit("reader", "partly", {1: 4})  # the third holds nothing: it does not matter
    sample = read(settings(kafka_server.bootstrap, "partly"))["partly", "reader"]
    assert (sample.depth, sample.unknown_partitions) == (3, 0)


def test_an_idle_group_has_depth_and_age_zero_not_unknown(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("idle")
    kafka_server.produce("idle", 3)
    kafka_server.commit("reader", "idle", {0: 3})
    sample = read(settings(kafka_server.bootstrap, "idle"))["idle", "reader"]
    assert (sample.depth, sample.oldest_age_seconds, sample.retention_margin) == (0, 0.0, None)
    assert sample.unavailable["retention_margin"] == "nothing waits, so nothing can be lost unread"


def test_who_reads_committed_records_waits_only_for_those_before_the_last_stable_offset(
    kafka_server: KafkaServer,
) -> None:
    kafka_server.make_topics("ledger")
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap, "transactional.id": "ledger"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("ledger", b"x", partition=0)
    producer.commit_transaction(20)  # offsets 0 to 2, and the control record 3
    producer.begin_transaction()
    for _ in range(5):
        producer.produce("ledger", b"x", partition=0)
    assert producer.flush(20) == 0  # offsets 4 to 8, not committed yet
    for group in ("strict", "loose"):
        kafka_server.commit(group, "ledger", {0: 1})
    kafka_server.commit("at-the-marker", "ledger", {0: 3})
    read_committed = ["strict", "at-the-*"]
    found = read(settings(kafka_server.bootstrap, "ledger", read_committed=read_committed))
    assert found["ledger", "loose"].depth == 8
    assert found["ledger", "strict"].depth == 3  # the marker takes an offset: offsets are not messages
    marker = found["ledger", "at-the-marker"]
    assert (marker.depth, marker.oldest_age_seconds) == (1, 0.0)  # nothing but the marker is left
    producer.abort_transaction(20)

    def strict() -> int | None:
        return read(settings(kafka_server.bootstrap, "ledger", read_committed=read_committed))["ledger", "strict"].depth

    wait_until(lambda: strict() == 9, "the last stable offset to reach the end")


def test_members_are_counted_by_the_topics_that_they_are_assigned(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("shared-a", partitions=2)
    kafka_server.make_topics("shared-b", partitions=1)
    kafka_server.produce("shared-a", 1)
    for protocol in ("classic", "consumer"):
        group = f"members-{protocol}"
        kafka_server.commit(group, "shared-a", {0: 0, 1: 0})
        kafka_server.commit(group, "shared-b", {0: 0})
        consumers = [
            Consumer(
                {
                    "bootstrap.servers": kafka_server.bootstrap,
                    "group.id": group,
                    "group.protocol": protocol,
                    "enable.auto.commit": False,
                }
            )
            for _ in range(2)
        ]
        try:
            consumers[0].subscribe(["shared-a", "shared-b"])
            consumers[1].subscribe(["shared-a"])

            def assigned(consumers: list[Consumer] = consumers) -> bool:
                for consumer in consumers:
                    consumer.poll(0.05)
                counts = [len(consumer.assignment()) for consumer in consumers]
                return sum(counts) == 3 and all(counts)

            wait_until(assigned, "both to have partitions", seconds=40)
            of_each = [{place.topic for place in consumer.assignment()} for consumer in consumers]
            found = read(settings(kafka_server.bootstrap, "shared-*", groups={"include": [group]}))
            for topic in ("shared-a", "shared-b"):
                assert found[topic, group].consumers == sum(topic in topics for topics in of_each)
            assert found["shared-a", group].state == "Stable"
        finally:
            for consumer in consumers:
                consumer.close()


def test_a_rebalancing_group_is_still_sampled(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("balance", partitions=2)
    kafka_server.produce("balance", 5)
    kafka_server.commit("movers", "balance", {0: 2, 1: 0})
    config = {"bootstrap.servers": kafka_server.bootstrap, "group.id": "movers", "enable.auto.commit": False}
    first = Consumer({**config, "session.timeout.ms": 45000})
    second = Consumer(config)
    broker = settings(kafka_server.bootstrap, "balance", groups={"include": ["movers"]})
    try:
        first.subscribe(["balance"])
        wait_until(lambda: first.poll(0.05) or len(first.assignment()) == 2, "the first to have its partitions")

        async def work(source: KafkaSource) -> None:
            second.subscribe(["balance"])  # the first does not poll: the rebalance lasts
            second.poll(0.1)
            for _ in range(400):
                found = await read_once(source)
                assert found["balance", "movers"].depth == 3
                if found["balance", "movers"].state == "PreparingRebalance":
                    return
                second.poll(0.02)
            raise AssertionError("no rebalance was seen")

        using(broker, work)
    finally:
        first.close()
        second.close()


def test_retention_that_overtakes_a_group_leaves_a_margin_of_nothing(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("kept")
    began = now_ms()
    for hours in (5, 4, 3, 2, 1):
        kafka_server.produce("kept", 1, timestamp=began - hours * HOUR)
    kafka_server.commit("slow", "kept", {0: 2})

    async def work(source: KafkaSource) -> None:
        whole = (await read_once(source))["kept", "slow"]
        assert (whole.retention_margin, whole.unavailable["retention_margin"]) == (
            None,
            "retention has deleted nothing yet",
        )
        kafka_server.delete_records("kept", 1)
        assert (await read_once(source))["kept", "slow"].retention_margin == 1
        kafka_server.delete_records("kept", 3)
        for _ in range(2):  # the second time by what it remembers
            sample = (await read_once(source))["kept", "slow"]
            assert (sample.depth, sample.retention_margin, sample.lost_total) == (2, 0, 1)
            assert sample.oldest_age_seconds == pytest.approx(2 * 3600, abs=300)
        kafka_server.delete_records("kept", 5)
        sample = (await read_once(source))["kept", "slow"]
        assert (sample.depth, sample.oldest_age_seconds) == (0, 0.0)

    using(settings(kafka_server.bootstrap, "kept"), work)


def test_a_topic_that_is_made_anew_has_an_unknown_lag_never_a_negative_one(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("anew")
    kafka_server.produce("anew", 5)
    consumer = Consumer({"bootstrap.servers": kafka_server.bootstrap, "group.id": "old", "enable.auto.commit": False})
    consumer.assign([TopicPartition("anew", 0)])  # keeps what is committed when the topic goes

    async def work(source: KafkaSource) -> None:
        kafka_server.commit("old", "anew", {0: 5})
        assert (await read_once(source))["anew", "old"].depth == 0
        kafka_server.delete_topic("anew")

        async def until(check: object) -> dict[tuple[str, str | None], object]:
            for _ in range(200):
                source.reader.cluster.forget_leaders()
                found = await read_once(source)
                if check(found):  # type: ignore[operator]
                    return dict(found)
                await asyncio.sleep(0.05)
            raise AssertionError("not within ten seconds")

        await until(lambda found: not found)  # deleted: left out
        kafka_server.make_topics("anew")
        kafka_server.produce("anew", 2)
        kafka_server.commit("old", "anew", {0: 5})  # by a consumer that does not know
        await until(lambda found: ("anew", "old") in found and found["anew", "old"].published_total == 2)
        sample = (await read_once(source))["anew", "old"]
        assert (sample.depth, sample.oldest_age_seconds) == (None, None)
        assert "the log was recreated" in sample.unavailable["depth"]

    try:
        using(settings(kafka_server.bootstrap, "anew"), work)
    finally:
        consumer.close()


def test_a_rewound_group_is_judged_so_and_a_deleted_one_is_left_out(
    kafka_server: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_server.make_topics("wound", partitions=2)
    kafka_server.produce("wound", 9)
    status = {"interval": 0.1, "window": 4}

    async def work(source: KafkaSource) -> None:
        for offset in (3, 5, 7):
            kafka_server.commit("back", "wound", {0: offset, 1: 0})
            await source.read()
            await asyncio.sleep(0.15)
        kafka_server.commit("back", "wound", {0: 1})
        sample = (await read_once(source))["wound", "back"]
        assert (sample.status, sample.depth) == ("REWIND", 8)
        await asyncio.sleep(1)
        sample = (await read_once(source))["wound", "back"]
        assert sample.status == "STOP"  # nobody is there to go on
        kafka_server.delete_group("back")
        assert set(await read_once(source)) == {("wound", None)}

    with caplog.at_level("INFO", logger="collectors.kafka"):
        using(settings(kafka_server.bootstrap, "wound", status=status), work)
    assert "group back on topic wound: REWIND (partitions 0)" in caplog.text


def test_filters_choose_groups_and_topics_and_inner_topics_are_never_read(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("chosen-a", "chosen-b", "left-out")
    for topic in ("chosen-a", "chosen-b", "left-out"):
        for group in ("team-x", "team-y"):
            kafka_server.commit(group, topic, {0: 0})
    chosen = {"groups": {"include": ["team-*"], "exclude": ["*-y"]}, "unread_topics": False}
    found = read(settings(kafka_server.bootstrap, "chosen-*", **chosen))
    assert set(found) == {("chosen-a", "team-x"), ("chosen-b", "team-x")}
    everything = read(settings(kafka_server.bootstrap))
    assert not [topic for topic, _ in everything if topic.startswith("__")]


@proves("kafka", "dead letters", "by the settings")
def test_a_dead_letter_topic_says_whom_it_serves(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("work", "work-dead")
    found = read(settings(kafka_server.bootstrap, "work*", dead_letters={"work-dead": "work"}))
    assert {sample.queue: sample.dead_letter_for for sample in found.values()} == {"work": None, "work-dead": "work"}


def test_a_topic_that_is_just_made_is_read_as_soon_as_it_is_there(kafka_server: KafkaServer) -> None:
    async def work(source: KafkaSource) -> None:
        for number in range(5):
            name = f"fresh-{number}"
            made = kafka_server.admin()
            future = made.create_topics([NewTopic(name, 8, 1)])[name]
            for _ in range(300):
                source.reader.cluster.forget_leaders()
                sample = (await read_once(source)).get((name, None))
                if sample is not None and sample.published_total == 0:
                    break
                assert sample is None or sample.published_total is None  # unknown, never wrong
            else:
                raise AssertionError("it was never read")
            future.result(20)

    using(settings(kafka_server.bootstrap, "fresh-*"), work)


@pytest.mark.deep  # as in the contract of all
def test_a_broker_that_goes_away_is_a_lost_connection_and_comes_back(own_kafka_server: KafkaServer) -> None:
    prepare(own_kafka_server)
    broker = settings(own_kafka_server.bootstrap, timeout_seconds=2)

    async def work(source: KafkaSource) -> None:
        before = await read_once(source)
        own_kafka_server.kill()
        with pytest.raises(ConnectionLost):
            await source.read()
        with pytest.raises(ConnectionLost):
            await source.open()
        own_kafka_server.start()
        await source.open()
        for _ in range(200):  # the groups' coordinator loads what was committed
            after = by_name(await source.read())
            if ("orders", "billing") in after and after["orders", "billing"].depth is not None:
                break
            await asyncio.sleep(0.05)
        assert after["orders", "billing"].depth == before["orders", "billing"].depth == 4

    using(broker, work)


def test_our_figures_are_the_clients_own(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("compared", partitions=7)
    for partition in range(7):
        kafka_server.produce("compared", partition + 3, partition=partition)
    kafka_server.commit("comparer", "compared", {partition: partition for partition in range(7)})
    admin = kafka_server.admin()
    told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("comparer")])["comparer"].result(10)
    places = {TopicPartition(one.topic, one.partition): OffsetSpec.latest() for one in told.topic_partitions}
    ends = sum(future.result(10).offset for future in admin.list_offsets(places).values())
    sample = read(settings(kafka_server.bootstrap, "compared"))["compared", "comparer"]
    assert sample.published_total == ends
    assert sample.depth == ends - sum(one.offset for one in told.topic_partitions)
