"""Kafka as bronze: rows and positions together or not at all, one writer a source, nothing read before it is there."""

from __future__ import annotations

import os
import random
import signal
import string
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.bronze import Bronze
from collectors.isolate import RowIsolator
from collectors.receive.bronze_writer import BronzeWriter
from collectors.receive.events import Sent
from collectors.receive.horizon import Horizon
from collectors.receive.polls import PollCount
from collectors.transport import LakeBehind, chosen_bronze
from collectors.transport.cluster import Cluster
from collectors.transport.encode import Encoder
from collectors.transport.outlet import Outlet
from collectors.transport.settings import TransportSettings
from lake.errors import UserError
from lake.store import Lake, UnwritableRows
from spark_analytics.landing.land import landed_id as analytics_landed_id
from tests.collectors.rows import event_rows, summary_rows
from tests.collectors.transport.making import bronze, decided, sent, settings
from tests.support.deep import examples
from tests.support.kafka import PASSWORD, USER, KafkaServer
from tests.support.waiting import wait_until

EARLY = datetime(2020, 1, 1, tzinfo=UTC)


def _send_in_the_end(one: Bronze, tenant: str, *, version: int) -> None:
    """Send as a collector does: again after each lost connection."""
    for _ in range(30):
        try:
            one.append("message_events", event_rows("q", [tenant]), app_id="tap:mq@1", version=version)
            return
        except ConnectionLost:
            continue
    raise AssertionError("Kafka did not take it")


def test_the_lake_itself_is_the_transport_unless_kafka_is_chosen(lake: Lake) -> None:
    assert chosen_bronze(TransportSettings(), lake) is lake


def test_a_version_is_sent_once_and_found_again_by_the_next_process(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen = settings(kafka_server)
    first: Bronze = bronze(chosen, lake)
    assert first.committed("message_events", "tap:mq@1") is None
    assert first.append("message_events", event_rows("q", ["a", "b"]), app_id="tap:mq@1", version=7)
    assert not first.append("message_events", event_rows("q", ["a", "b"]), app_id="tap:mq@1", version=7)
    assert first.append("event_summaries", summary_rows("q", ["a"]), app_id="tap:mq@1", version=3)
    assert first.append("message_events", event_rows("q", ["c"]))  # not numbered: as often as it is given
    second = bronze(chosen, lake)
    assert second.committed("message_events", "tap:mq@1") == 7
    assert second.committed("event_summaries", "tap:mq@1") == 3
    assert not second.append("message_events", event_rows("q", ["x"]), app_id="tap:mq@1", version=6)
    assert Counter(row["tenant"] for row in sent(chosen, "message_events")) == {"a": 1, "b": 1, "c": 1}
    assert len(sent(chosen, "event_summaries")) == 1


def test_several_positions_and_a_position_without_rows_are_kept(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen = settings(kafka_server)
    one = bronze(chosen, lake)
    assert one.append("message_events", event_rows("q", ["a"]), positions={"tap#orders-0": 5, "tap#orders-1": 2})
    assert not one.append("message_events", event_rows("q", ["a"]), positions={"tap#orders-0": 5, "tap#orders-1": 1})
    assert one.append("message_events", event_rows("q", []), positions={"tap#orders-0": 6, "tap#orders-1": 2})
    again = bronze(chosen, lake)
    assert [again.committed("message_events", f"tap#orders-{partition}") for partition in (0, 1, 2)] == [6, 2, None]
    assert len(sent(chosen, "message_events")) == 1


def test_a_process_whose_place_was_taken_writes_nothing_more(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen = settings(kafka_server)
    former, later = bronze(chosen, lake), bronze(chosen, lake)
    former.append("message_events", event_rows("q", ["a"]), app_id="tap:mq@1", version=1)
    later.append("message_events", event_rows("q", ["b"]), app_id="tap:mq@1", version=2)
    with pytest.raises(ConnectionLost, match="fenced"):
        former.append("message_events", event_rows("q", ["zombie"]), app_id="tap:mq@1", version=3)
    for _ in range(2):
        with pytest.raises(UserError, match="another process"):
            former.append("message_events", event_rows("q", ["zombie"]), app_id="tap:mq@1", version=3)
    assert later.append("message_events", event_rows("q", ["c"]), app_id="tap:mq@1", version=3)
    assert later.append("message_events", event_rows("q", ["d"]), app_id="tap:other", version=1)
    assert Counter(row["tenant"] for row in sent(chosen, "message_events")) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_all_clients_of_a_receiver_have_one_way_into_kafka(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen, count = settings(kafka_server), PollCount(("b", "q", None), 2, 1)
    requests = [Sent(sender, 5, polls=[count]) for sender in ("a", "b@c", "d#e")]
    for _ in range(2):  # the second is the receiver that was started again
        one = bronze(chosen, lake)
        bronze_writer = BronzeWriter("receiver:r", "receiver:r", Horizon(1000, 60), 1000)
        bronze_writer.begun(one)
        bronze_writer.counts(one, requests, [], [], [])
        assert list(one._outlets) == ["receiver:r"]
    assert [row["polls_total"] for row in sent(chosen, "queue_samples")] == [6]


def test_what_was_sent_is_not_read_from_the_lake_before_it_is_there(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen = settings(kafka_server, catch_up_seconds=0.3)
    one = bronze(chosen, lake)
    assert list(one.scan("message_events", ["tenant"], EARLY)) == []  # nothing was sent
    rows = event_rows("q", ["a", "b"])
    one.append("message_events", rows, app_id="tap:mq@1", version=1)
    with pytest.raises(LakeBehind, match="analyze"):
        list(one.scan("message_events", ["tenant"], EARLY))
    topic = f"{chosen.prefix}.message_events"
    cluster = Cluster({"bootstrap.servers": chosen.bootstrap}, 5)
    identity, partitions = cluster.identity(topic)
    # What the analytics do: the rows, and the offset behind each partition's last record (not behind its markers).
    positions = {
        analytics_landed_id(identity, record.partition()): record.offset() + 1
        for record in cluster.records(topic, {}, cluster.ends(topic, partitions))
    }
    lake.append("message_events", rows, positions=positions)
    found = [tenant for batch in one.scan("message_events", ["tenant"], EARLY) for tenant in batch[0].to_pylist()]
    assert sorted(found) == ["a", "b"]


def test_kafka_away_is_waited_for_and_what_was_held_is_sent_once(own_kafka_server: KafkaServer, lake: Lake) -> None:
    chosen = settings(own_kafka_server, timeout_seconds=2)
    one = bronze(chosen, lake)
    _send_in_the_end(one, "a", version=1)
    wait_until(lambda: decided(chosen, "message_events"), "the end of the transaction to be written")
    own_kafka_server.kill()
    with pytest.raises(ConnectionLost):
        one.append("message_events", event_rows("q", ["b"]), app_id="tap:mq@1", version=2)
    own_kafka_server.start()
    _send_in_the_end(one, "b", version=2)
    assert one.committed("message_events", "tap:mq@1") == 2
    assert Counter(row["tenant"] for row in sent(chosen, "message_events")) == {"a": 1, "b": 1}


@pytest.mark.parametrize("survivor", [False, True][: examples(1, 2)])
def test_a_transaction_that_a_crash_of_kafka_left_open_is_undone_and_sent_again(
    own_kafka_server: KafkaServer, lake: Lake, survivor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(own_kafka_server, timeout_seconds=2)
    one = bronze(chosen, lake)
    _send_in_the_end(one, "a", version=1)

    outlet = one._outlets["tap:mq"]
    produce = outlet._produce

    def produced_before_a_crash(topic: str, key: bytes, value: bytes) -> None:
        produce(topic, key, value)
        if topic == f"{chosen.prefix}.positions":
            assert outlet._writer.flush(10) == 0  # all are in Kafka's log, and the transaction is open
            own_kafka_server.kill()

    records = [
        record for queue in "qp" for record in Encoder().records("message_events", event_rows(queue, ["b", "c"]))
    ]
    with monkeypatch.context() as patch, pytest.raises(KafkaException):
        patch.setattr(outlet, "_produce", produced_before_a_crash)
        outlet.send(f"{chosen.prefix}.message_events", records, "message_events", {"tap:mq@1": 2})
    own_kafka_server.start()
    assert not decided(chosen, "message_events")
    if not survivor:
        one = bronze(chosen, lake)
    _send_in_the_end(one, "b", version=2)
    assert one.committed("message_events", "tap:mq@1") == 2
    assert bronze(settings(own_kafka_server, prefix=chosen.prefix), lake).committed("message_events", "tap:mq@1") == 2
    assert Counter(row["tenant"] for row in sent(chosen, "message_events")) == {"a": 1, "b": 1}


def test_a_new_producer_may_take_longer_than_the_timeout(kafka_server: KafkaServer) -> None:
    config = {"bootstrap.servers": kafka_server.bootstrap}
    outlet = Outlet("tap:mq", settings(kafka_server).prefix, Cluster(config, 5), config, timeout=0.01)

    def alone() -> bool:
        try:
            outlet._be_alone()
        except KafkaException:
            return False
        return True

    assert not alone()
    wait_until(alone, "Kafka to give the producer its number")


def test_an_open_transaction_of_one_source_holds_back_only_what_may_be_its_end(
    kafka_server: KafkaServer, lake: Lake
) -> None:
    chosen = settings(kafka_server)
    one = bronze(chosen, lake)
    one.append("message_events", event_rows("q", ["a"]), app_id="tap:mq@1", version=1)
    other = Producer({"bootstrap.servers": chosen.bootstrap, "transactional.id": f"{chosen.prefix}.tap:other"})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce(f"{chosen.prefix}.positions", b"9", b'["message_events", "tap:other@1"]')
    assert other.flush(20) == 0
    second = bronze(chosen, lake)
    assert second.append("message_events", event_rows("q", ["b"]), app_id="tap:mq@1", version=2)
    with pytest.raises(ConnectionLost, match="open"):  # what the second wrote lies behind the open transaction
        bronze(chosen.model_copy(update={"timeout_seconds": 2}), lake).committed("message_events", "tap:mq@1")
    other.abort_transaction(20)
    third = bronze(chosen, lake)
    assert third.committed("message_events", "tap:mq@1") == 2
    assert third.committed("message_events", "tap:other@1") is None


def test_a_kafka_that_hangs_is_lost_and_found_again(own_kafka_server: KafkaServer, lake: Lake) -> None:
    one = bronze(settings(own_kafka_server, timeout_seconds=2, catch_up_seconds=0), lake)
    one.append("message_events", event_rows("q", ["a"]), app_id="tap:mq@1", version=1)
    os.kill(own_kafka_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionLost):
            one.scan("message_events", ["tenant"], EARLY)
    finally:
        os.kill(own_kafka_server.pid, signal.SIGCONT)


def test_a_row_of_megabytes_is_sent(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen = settings(kafka_server)
    assert bronze(chosen, lake).append("message_events", event_rows("q" * 2_000_000, ["a"]))
    assert len(sent(chosen, "message_events")) == 1


def test_credentials_are_shown_and_never_told(
    kafka_server: KafkaServer, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGHT", PASSWORD)
    monkeypatch.setenv("WRONG", "guessed-badly")
    by_sasl = {"bootstrap": kafka_server.sasl_bootstrap, "user": USER, "timeout_seconds": 5}
    right = bronze(settings(kafka_server, **by_sasl, password={"env": "RIGHT"}), lake)
    assert right.append("message_events", event_rows("q", ["a"]), app_id="tap:mq@1", version=1)
    wrong = bronze(settings(kafka_server, **by_sasl, password={"env": "WRONG"}), lake)
    with pytest.raises((CredentialsRefused, ConnectionLost)) as refused:
        wrong.append("message_events", event_rows("q", ["a"]), app_id="tap:mq@1", version=1)
    assert "guessed-badly" not in str(refused.value)


def test_rows_that_kafka_takes_of_nobody_are_set_apart_and_the_others_sent_once(
    kafka_server: KafkaServer, lake: Lake
) -> None:
    chosen = settings(kafka_server)
    rng = random.Random(7)
    too_long = "".join(rng.choices(string.ascii_letters + string.digits, k=3 << 20))  # nothing packs it
    rows = event_rows("q", ["a", "b", "c", "d", "e"])
    reasons = pa.array([b"", b"", too_long.encode(), b"\xed\xa0\x80", b""], pa.binary()).view(pa.string())
    rows = rows.set_column(rows.column_names.index("reason"), rows.schema.field("reason"), reasons)
    one = bronze(chosen, lake)
    with pytest.raises(UnwritableRows):
        one.append("message_events", rows.slice(2, 1), app_id="tap:mq@1", version=1)
    assert RowIsolator(one, "tap:mq", "tap:mq@1").append("message_events", rows, {"tap:mq@1": 1}) == 2
    again = bronze(chosen, lake)
    assert again.committed("message_events", "tap:mq@1") == 1
    assert Counter(row["tenant"] for row in sent(chosen, "message_events")) == {"a": 1, "b": 1, "e": 1}
    kept = sent(chosen, "rejected_records")
    assert [row["count"] for row in kept] == [1, 1] and all("UnwritableRows" in row["reason"] for row in kept)
