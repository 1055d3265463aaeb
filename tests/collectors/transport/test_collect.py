"""`sojourn collect` with Kafka as its transport: what a tap tells goes to the topics, and a restart goes on there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from collectors.settings import CollectSettings
from tests.collectors.kafka.test_tap import name, produce
from tests.collectors.support import running
from tests.collectors.transport.making import sent, settings
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until


def test_a_tap_goes_on_where_the_topics_say_that_it_was(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic, chosen = name(), settings(kafka_server)
    kafka_server.make_topics(topic, partitions=2)
    kafka_server.commit("g", topic, {0: 0, 1: 0})
    produce(kafka_server, topic, 10)
    tap = {"topics": [{"name": topic, "groups": ["g"]}], "poll_interval": 0.05}
    broker = {"kind": "kafka", "name": "k", "bootstrap": kafka_server.bootstrap, "sample": False, "tap": tap}
    whole = CollectSettings.model_validate({"brokers": [broker], "transport": chosen.model_dump()})

    def told(**wanted: int) -> None:
        def there() -> bool:
            found = [row for row in sent(chosen, "message_events") if row["broker"] == "k"]
            assert len({row["event_id"] for row in found}) == len(found)
            return Counter(row["event_type"] for row in found) == Counter(wanted)

        wait_until(there, str(wanted), seconds=40)

    with running(whole, tmp_path / "one"):
        wait_until(lambda: _made(kafka_server, chosen.prefix), "the topics", seconds=40)
        told(enqueued=10)
    kafka_server.commit("g", topic, {0: 3, 1: 1})
    produce(kafka_server, topic, 4)
    with running(whole, tmp_path / "two"):  # another machine: nothing on its disk
        told(enqueued=14, received=4, completed=4)


def _made(server: KafkaServer, prefix: str) -> bool:
    return f"{prefix}.message_events" in server.admin().list_topics(timeout=5).topics
