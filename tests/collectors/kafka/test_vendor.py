"""Where our own requests cannot be spoken, librdkafka reads the same, and it is said."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import struct
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Consumer
from pydantic import ValidationError

from brokers.errors import CredentialsRefused
from brokers.kafka.settings import Aws
from collectors.kafka.cluster import Cluster
from collectors.kafka.connection import connection
from collectors.kafka.msk import tokens
from collectors.kafka.reader import ClusterReader
from collectors.kafka.source import KafkaSource
from collectors.kafka.vendor import VendorReader
from collectors.kafka.wire.versions import NEEDED, Unspoken, missing
from collectors.samples import Sample
from collectors.transport.settings import TransportSettings
from lake.errors import UserError
from tests.collectors.kafka.reading import read, read_once, settings, using
from tests.support.facts import proves
from tests.support.faulty import FaultyHttp, Reply, Request
from tests.support.kafka import USER, KafkaServer
from tests.support.waiting import wait_until

NEW = dict.fromkeys(NEEDED, (0, 20))


def test_what_a_broker_lacks_is_named_with_what_it_has() -> None:
    assert missing(NEW) is None
    assert missing(NEW | {9: (0, 7)}) == "OffsetFetch 8 (it speaks 0 to 7)"
    without = {api: versions for api, versions in NEW.items() if api != 16}
    assert missing(without) == "ListGroups 4 or 5 (it does not know it)"
    assert missing(NEW | {16: (0, 4)}) is None
    assert str(missing(NEW | {1: (13, 17), 2: (0, 5)})) == (
        "ListOffsets 6 (it speaks 0 to 5), Fetch 12 (it speaks 13 to 17)"
    )


@contextmanager
def claiming(server: KafkaServer, api: int, newest: int) -> Iterator[str]:
    """An address before ``server`` that says of ``api`` that ``newest`` is the last version, to whoever asks by our own
    first request (ApiVersions 0), and hands everything else through."""
    closing = threading.Event()

    def pump(source: socket.socket, sink: socket.socket, *, changed: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if changed:  # length, number, error, count, and then api, oldest, newest of each
                    (count,) = struct.unpack_from(">i", data, 10)
                    for at in range(14, 14 + 6 * count, 6):
                        if struct.unpack_from(">h", data, at) == (api,):
                            data = data[: at + 4] + struct.pack(">h", newest) + data[at + 6 :]
                    changed = False
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while not closing.is_set():
            with suppress(TimeoutError):
                client, _ = listening.accept()
                broker = socket.create_connection(("127.0.0.1", server.port))
                first = client.recv(1 << 16)
                old = first[4:8] == b"\0\x12\0\0"
                broker.sendall(first)
                threading.Thread(target=pump, args=(client, broker), kwargs={"changed": False}, daemon=True).start()
                threading.Thread(target=pump, args=(broker, client), kwargs={"changed": old}, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            closing.set()
            thread.join()


@proves("kafka", "cluster shapes", "brokers that lack a request, by librdkafka")
def test_a_broker_without_a_request_is_named_and_read_by_librdkafka(
    kafka_server: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_server.make_topics("older")
    kafka_server.produce("older", 5)
    kafka_server.commit("reader", "older", {0: 2})
    with claiming(kafka_server, 9, 7) as address:
        with pytest.raises(Unspoken, match=r"OffsetFetch 8 \(it speaks 1 to 7\)"):
            Cluster(settings(address)).open()

        async def work(source: KafkaSource) -> None:
            assert isinstance(source.reader, VendorReader)
            sample = (await read_once(source))["older", "reader"]
            assert (sample.depth, sample.state) == (3, "Empty")
            assert sample.oldest_age_seconds is not None

        using(settings(address, "older"), work)
    assert "is sampled by librdkafka" in caplog.text and "OffsetFetch 8" in caplog.text


def comparable(found: dict[Any, Sample]) -> dict[Any, dict[str, Any]]:
    """Without what time has changed between two readings."""
    rows = {key: dataclasses.asdict(sample) for key, sample in found.items()}
    for row in rows.values():
        row["sampled_at"] = 0
        row["oldest_age_seconds"] = row["oldest_age_seconds"] and "known"
        row["transactional_age_seconds"] = row["transactional_age_seconds"] and "known"
    return rows


def test_librdkafka_reads_what_our_own_requests_read(kafka_server: KafkaServer) -> None:
    kafka_server.make_topics("alike-a", partitions=3)
    kafka_server.make_topics("alike-b", "alike-unread")
    kafka_server.produce("alike-a", 9)
    kafka_server.produce("alike-a", 4, partition=1)
    kafka_server.produce("alike-b", 2)
    kafka_server.commit("one", "alike-a", {0: 3, 1: 4})
    kafka_server.commit("two", "alike-a", {0: 9})  # of the second partition nothing is committed
    kafka_server.commit("two", "alike-b", {0: 1})
    kafka_server.delete_records("alike-a", 1)
    alive = Consumer({"bootstrap.servers": kafka_server.bootstrap, "group.id": "alive", "enable.auto.commit": False})
    broker = settings(kafka_server.bootstrap, "alike-*", groups={"include": ["one", "two", "alive"]})

    async def both() -> list[dict[Any, dict[str, Any]]]:
        found = []
        for reader in (ClusterReader(broker), VendorReader(broker)):
            source = KafkaSource(broker)
            source.reader = reader
            await source.open()
            found.append(comparable(await read_once(source)))
            await source.close()
        return found

    try:
        alive.subscribe(["alike-b"])
        wait_until(lambda: alive.poll(0.05) or alive.assignment(), "its partition", seconds=60)
        ours, theirs = asyncio.run(both())
    finally:
        alive.close()
    assert len(ours) == 5 and ours["alike-b", "alive"]["consumers"] == 1
    assert theirs == ours


@contextmanager
def provider(secret: str = "right") -> Iterator[str]:
    """A token endpoint that gives whoever knows ``secret`` a token, signed by nobody, that says he is USER."""

    def part(said: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    def answer(request: Request) -> Reply:
        shown = request.headers.get("Authorization", "").removeprefix("Basic ")
        if urlsafe_b64decode(shown + "==").decode().partition(":")[2] != secret:
            return Reply(401, b'{"error": "invalid_client"}')
        now = int(time.time())
        token = f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now, 'exp': now + 300})}."
        return Reply(200, json.dumps({"access_token": token}).encode(), {"Content-Type": "application/json"})

    with FaultyHttp(rule=answer) as server:
        yield f"{server.url}/token"


def oauth(url: str) -> dict[str, Any]:
    secret = {"env": "OAUTH_SECRET"}
    return {"mechanism": "OAUTHBEARER", "oauth": {"token_url": url, "client_id": "sojourn", "client_secret": secret}}


@proves("kafka", "auth", "OAUTHBEARER")
def test_a_token_of_a_provider_opens_the_cluster(
    kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_server.make_topics("tokened")
    kafka_server.produce("tokened", 3)
    kafka_server.commit("bearer", "tokened", {0: 1})
    monkeypatch.setenv("OAUTH_SECRET", "right")
    with provider() as url:
        sample = read(settings(kafka_server.sasl_bootstrap, "tokened", **oauth(url)))["tokened", "bearer"]
        assert (sample.depth, sample.oldest_age_seconds is None) == (2, False)
    assert "our own requests do not speak OAUTHBEARER" in caplog.text


def test_credentials_belong_to_their_mechanism() -> None:
    for wrong in (
        {"mechanism": "OAUTHBEARER"},
        {"mechanism": "GSSAPI"},
        {"mechanism": "AWS_MSK_IAM", "aws": {"region": "eu-west-1"}},  # not without TLS
        {"aws": {"region": "eu-west-1"}},
        oauth("https://idp.example/token") | {"user": "u", "password": {"env": "X"}},
        oauth("https://user:secret@idp.example/token"),
    ):
        for model in (TransportSettings.model_validate, lambda chosen: settings("127.0.0.1:1", **chosen)):
            with pytest.raises(ValidationError):
                model(wrong)
    assert TransportSettings.model_validate(oauth("https://idp.example/token")).as_broker().oauth is not None


def test_what_librdkafka_is_told_of_kerberos_and_of_a_key_with_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "opens-the-key")
    kerberos = {"principal": "sojourn@EXAMPLE.ORG", "keytab": "/etc/sojourn.keytab"}
    tls = {"enabled": True, "certificate": "/c.pem", "key": "/k.pem", "key_password": {"env": "KEY"}}
    told = connection(settings("127.0.0.1:1", mechanism="GSSAPI", kerberos=kerberos, tls=tls))
    assert told["security.protocol"] == "SASL_SSL"
    assert (told["sasl.mechanism"], told["sasl.kerberos.service.name"]) == ("GSSAPI", "kafka")
    assert (told["sasl.kerberos.principal"], told["sasl.kerberos.keytab"]) == tuple(kerberos.values())
    assert told["ssl.key.password"] == "opens-the-key"
    with pytest.raises(UserError, match="server_name"):
        connection(settings("127.0.0.1:1", server_name="kafka.example"))


def test_a_token_for_msk_is_a_signed_request_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-told")
    token, expires = tokens(Aws(region="eu-west-1"), "mq")("")
    url = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    said = parse_qs(url.query)
    assert (url.scheme, url.netloc, said["Action"]) == (
        "https",
        "kafka.eu-west-1.amazonaws.com",
        ["kafka-cluster:Connect"],
    )
    assert said["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert said["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert (said["X-Amz-Expires"], len(said["X-Amz-Signature"][0]), "=" in token) == (["900"], 64, False)
    assert expires > 0 and "not-told" not in url.query
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(CredentialsRefused):
        tokens(Aws(region="eu-west-1"), "mq")
