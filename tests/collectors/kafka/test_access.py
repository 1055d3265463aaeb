"""Who we are to a Kafka broker: credentials, encryption, and rights that we lack."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.kafka.connection import connection
from lake.errors import UserError
from lake.secret import Secret
from tests.collectors.kafka.reading import read, settings
from tests.support.facts import proves
from tests.support.kafka import PASSWORD, USER, KafkaServer
from tests.support.servers import program


@pytest.fixture
def shown(tmp_path: Path) -> dict[str, Any]:
    """The right credentials."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return {"user": USER, "password": Secret(file=tmp_path / "password")}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@proves("kafka", "auth", "PLAIN", "SCRAM-SHA-512")
def test_credentials_are_shown_and_wrong_ones_are_said_to_be_refused(
    kafka_server: KafkaServer, shown: dict[str, Any], tmp_path: Path, mechanism: str
) -> None:
    topic = f"guarded-{mechanism.lower()}"
    kafka_server.make_topics(topic)
    found = read(settings(kafka_server.sasl_bootstrap, topic, mechanism=mechanism, **shown))
    assert set(found) == {(topic, None)}
    wrong = tmp_path / "wrong"
    wrong.write_text("guessed-password")
    with pytest.raises(CredentialsRefused) as refused:
        read(settings(kafka_server.sasl_bootstrap, topic, mechanism=mechanism, user=USER, password=Secret(file=wrong)))
    assert "guessed-password" not in str(refused.value) + repr(refused.value)


def test_a_mechanism_that_the_broker_does_not_take_is_said_with_those_that_it_does(
    kafka_server: KafkaServer, shown: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="SCRAM-SHA-512"):
        read(settings(kafka_server.sasl_bootstrap, mechanism="SCRAM-SHA-256", **shown))
    with pytest.raises(ConnectionLost, match="credentials"):
        read(settings(kafka_server.sasl_bootstrap, timeout_seconds=2))


@proves("kafka", "auth", "TLS")
def test_tls_is_spoken_with_a_broker_whose_certificate_is_trusted(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("sealed")
    trusted = {"enabled": True, "ca": kafka_server.certificate}
    assert set(read(settings(kafka_server.tls_bootstrap, "sealed", tls=trusted))) == {("sealed", None)}
    with pytest.raises(UserError, match="not trusted"):
        read(settings(kafka_server.tls_bootstrap, "sealed", tls={"enabled": True}))
    with pytest.raises(ConnectionLost):
        read(settings(kafka_server.tls_bootstrap, "sealed", timeout_seconds=2))


@proves("kafka", "auth", "a certificate with an encrypted key")
def test_a_certificate_may_have_another_name_than_the_host_and_a_key_its_password(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    kafka_server.make_topics("renamed")
    address = kafka_server.tls_bootstrap.replace("localhost", "127.0.0.1")
    trusted = {"enabled": True, "ca": kafka_server.certificate}
    with pytest.raises(UserError, match="not trusted"):
        read(settings(address, tls=trusted))
    assert set(read(settings(address, "renamed", tls=trusted, server_name="localhost"))) == {("renamed", None)}
    key, secret = tmp_path / "key.pem", tmp_path / "secret"
    secret.write_text("opens-it")
    command = [str(program("openssl")), "pkey", "-in", str(kafka_server.certificate), "-aes256"]
    subprocess.run([*command, "-passout", f"file:{secret}", "-out", str(key)], check=True, capture_output=True)
    ours = trusted | {"certificate": kafka_server.certificate, "key": key}
    opened = settings(kafka_server.tls_bootstrap, "renamed", tls=ours | {"key_password": {"file": secret}})
    assert set(read(opened)) == {("renamed", None)}
    with pytest.raises(UserError, match="TLS files cannot be used"):
        read(settings(kafka_server.tls_bootstrap, tls=ours))
    assert AdminClient(connection(opened)).list_topics(timeout=10).brokers


def test_the_vendors_client_connects_with_the_same_settings(kafka_server: KafkaServer, shown: dict[str, Any]) -> None:
    trusted = {"enabled": True, "ca": kafka_server.certificate}
    for chosen in (
        settings(kafka_server.bootstrap),
        settings(kafka_server.tls_bootstrap, tls=trusted),
        settings(kafka_server.sasl_bootstrap, **shown),
        settings(kafka_server.sasl_bootstrap, mechanism="SCRAM-SHA-512", **shown),
    ):
        assert AdminClient(connection(chosen)).list_topics(timeout=10).brokers


def test_without_the_right_to_read_a_topic_all_but_the_age_is_known(
    kafka_server: KafkaServer, shown: dict[str, Any]
) -> None:
    kafka_server.make_topics("private")
    kafka_server.produce("private", 4)
    kafka_server.delete_records("private", 1)
    kafka_server.commit("reader-of-private", "private", {0: 2})
    kafka_server.deny(ResourceType.TOPIC, "private", AclOperation.READ)
    sample = read(settings(kafka_server.sasl_bootstrap, "private", **shown))["private", "reader-of-private"]
    assert (sample.depth, sample.retention_margin, sample.oldest_age_seconds) == (2, 1, None)
    assert sample.unavailable["oldest_age_seconds"] == "we are not allowed to read the topic"


def test_a_group_that_may_not_be_described_is_named_in_the_log(
    kafka_server: KafkaServer, shown: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    kafka_server.make_topics("hidden")
    kafka_server.commit("hidden-group", "hidden", {0: 0})
    kafka_server.deny(ResourceType.GROUP, "hidden-group", AclOperation.DESCRIBE)
    with caplog.at_level("WARNING", logger="collectors.kafka"):
        found = read(settings(kafka_server.sasl_bootstrap, "hidden", groups={"include": ["hidden-*"]}, **shown))
    assert set(found) == {("hidden", None)}
    assert "hidden-group" not in str(found)
    assert "hidden-group" in caplog.text
