"""A cluster of which one node cannot be spoken with: what is wrong with it is that node's, and the others are read."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR, create_server

import pytest

from brokers.errors import ConnectionLost
from brokers.kafka.wire.cluster import Metadata, Node, metadata_request
from collectors.kafka.cluster import Cluster, Job
from collectors.kafka.source import KafkaSource
from lake.errors import UserError
from tests.collectors.kafka.reading import read_once, settings, using
from tests.support.facts import proves
from tests.support.kafka import KafkaServer, self_signed


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[Node]:
    """A node that speaks TLS with a certificate of nobody's."""
    self_signed(tmp_path / "other.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "other.pem")
    listener = create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                raw, _ = listener.accept()
                with suppress(OSError), raw:
                    context.wrap_socket(raw, server_side=True)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield Node("localhost", listener.getsockname()[1])
    listener.shutdown(SHUT_RDWR)
    thread.join(20)
    listener.close()


@proves("kafka", "cluster shapes", "a node that is not trusted")
def test_a_node_whose_certificate_is_not_trusted_fails_alone(kafka_server: KafkaServer, untrusted: Node) -> None:
    trusted = {"enabled": True, "ca": kafka_server.certificate}
    cluster = Cluster(settings(kafka_server.tls_bootstrap, tls=trusted))
    cluster.open()
    told: list[int] = []

    def job(node: int) -> Job:
        return Job(metadata_request(), lambda answer: told.append(node))

    try:
        sound = next(iter(cluster.metadata.nodes))
        cluster.metadata = Metadata({**cluster.metadata.nodes, 99: untrusted}, cluster.metadata.topics)
        for _ in range(2):  # the second time it is not even tried
            failed = cluster.do({99: [job(99)], sound: [job(sound), job(sound)]})
            assert failed.keys() == {99} and "not trusted" in failed[99]
        assert told == [sound] * 4
        assert cluster.newest(99, 3) == -1
    finally:
        cluster.close()


def test_a_topic_is_not_said_to_be_read_by_nobody_while_one_nodes_groups_cannot_be_listed(
    kafka_server: KafkaServer, untrusted: Node
) -> None:
    kafka_server.make_topics("leaflets")
    trusted = {"enabled": True, "ca": kafka_server.certificate}

    async def work(source: KafkaSource) -> None:
        nobody = (await read_once(source))["leaflets", None]
        assert (nobody.depth, nobody.consumers) == (None, 0)
        assert "no group reads the topic" in nobody.unavailable["depth"]
        cluster = source.reader.cluster
        cluster.metadata = Metadata({**cluster.metadata.nodes, 99: untrusted}, cluster.metadata.topics)
        unknown = (await read_once(source))["leaflets", None]
        assert (unknown.depth, unknown.consumers, unknown.published_total) == (None, None, 0)
        assert "1 of 2 brokers did not list their groups" in unknown.unavailable["consumers"]
        assert "not trusted" in unknown.unavailable["depth"]

    using(settings(kafka_server.tls_bootstrap, "leaflets", tls=trusted), work)


def test_a_bootstrap_address_that_is_not_trusted_leaves_the_others(kafka_server: KafkaServer, untrusted: Node) -> None:
    trusted = {"enabled": True, "ca": kafka_server.certificate}
    bad = f"{untrusted.host}:{untrusted.port}"
    cluster = Cluster(settings(f"{bad},{kafka_server.tls_bootstrap}", tls=trusted))
    cluster.open()
    assert cluster.metadata.nodes
    with pytest.raises(UserError, match="not trusted"):
        Cluster(settings(bad, tls=trusted)).open()
    with pytest.raises(ConnectionLost, match="not trusted"):  # the other may only be away
        Cluster(settings(f"{bad},127.0.0.1:1", tls=trusted)).open()
