"""One Kafka broker for all tests here, and one for a test alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka import KafkaServer
from tests.support.servers import program


@pytest.fixture(scope="session")
def keystore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared broker's key and certificate in one file; the certificate is its own authority."""
    made = tmp_path_factory.mktemp("certificate") / "server.pem"
    command = [str(program("openssl")), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(made), "-out", str(made)], check=True, capture_output=True)
    return made


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory, keystore: Path) -> Iterator[KafkaServer]:
    """A broker that all tests share: name topics and groups for your test, and leave the broker running."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), keystore=keystore)
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
