"""One Kafka broker for all tests here, and one for a test alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Certificate, self_signed
from tests.support.kafka import KafkaServer


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The certificate of the shared broker."""
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[KafkaServer]:
    """A broker that all tests share: name topics and groups for your test, and leave the broker running."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), certificate=certificate)
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
