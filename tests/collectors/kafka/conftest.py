"""One Kafka broker for all tests here, and one for a test alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka import KafkaServer


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that all tests share: name topics and groups for your test, and leave the broker running."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_kafka_server(tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker for one test alone, which may kill it."""
    server = KafkaServer(tmp_path / "kafka")
    try:
        server.start()
        yield server
    finally:
        server.stop()
