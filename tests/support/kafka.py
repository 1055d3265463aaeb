"""A real Kafka broker (KRaft, broker and controller in one) on the loopback, ended by its own process id."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from spark_analytics.runtime.archive import TRAINING, archive_flags, archive_path
from spark_analytics.runtime.cache import replacing
from tests.support.jars import java_command
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.servers import program
from tests.support.waiting import wait_until

#: The one user of the listener that asks for credentials.
USER, PASSWORD = "watcher", "watchers-secret"

_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")

#: The store of a broker that joins none, as it was formatted by the first: Java's tool for it costs a third of a start,
#: and what it makes differs in the cluster's name alone.
_formatted: list[tempfile.TemporaryDirectory[str]] = []


class KafkaServer(ServerProcess):
    """One broker; its ports and stored topics outlast ``kill`` and ``start``.

    ``bootstrap`` asks for nothing, ``sasl_bootstrap`` for USER and PASSWORD by SASL (PLAIN, SCRAM-SHA-512) or for a
    token (OAUTHBEARER), and ``tls_bootstrap`` for TLS, with a ``certificate`` that is its own authority. USER may do
    what no rule denies; whoever comes without credentials may do anything. ``properties`` are added to the broker's
    own configuration. ``joining``: a broker that runs, whose cluster this one joins as the second.
    """

    patience = 15

    def __init__(
        self,
        folder: Path,
        *,
        heap: str = "384m",
        properties: Mapping[str, str] | None = None,
        joining: KafkaServer | None = None,
    ) -> None:
        super().__init__(folder)
        self._heap = heap
        self._joining = joining
        self._cluster = joining._cluster if joining else urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.port, self.sasl_port, self.tls_port, self.controller_port = free_ports(4)
        self.certificate = folder / "keystore.pem"
        self._properties = self._own_properties() | dict(properties or {})
        if joining is not None:
            self._properties |= {
                "process.roles": "broker",
                "node.id": "2",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{joining.controller_port}",
                "listeners": self._properties["advertised.listeners"],
            }

    @property
    def bootstrap(self) -> str:
        """Where clients connect, without credentials."""
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_bootstrap(self) -> str:
        """Where clients connect with USER and PASSWORD."""
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def tls_bootstrap(self) -> str:
        """Where clients connect by TLS."""
        return f"localhost:{self.tls_port}"

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def _own_properties(self) -> dict[str, str]:
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        listeners = f"PLAIN://127.0.0.1:{self.port},SASL://127.0.0.1:{self.sasl_port}"
        listeners += f",TLS://localhost:{self.tls_port}"
        return {
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(self.certificate),
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            # Takes tokens that nobody signed.
            "listener.name.sasl.oauthbearer.sasl.jaas.config": oauth,
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
            "authorizer.class.name": authorizer,
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "listener.name.sasl.plain.sasl.jaas.config": f'{jaas} user_{USER}="{PASSWORD}";',
            "log.dirs": str(self._folder / "store"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.min.heartbeat.interval.ms": "200",
            "group.consumer.heartbeat.interval.ms": "200",
            "auto.create.topics.enable": "false",
            # A broker that was killed is let in again when its session is over.
            "broker.session.timeout.ms": "2500",
            "broker.heartbeat.interval.ms": "500",
            "num.recovery.threads.per.data.dir": "2",
        }

    def start(self) -> None:
        """Format the store if it is new, start the broker and wait until it answers."""
        assert self._process is None, "it runs already"
        self.prepare()
        command = [*self._java(), f"-Xmx{self._heap}", "kafka.Kafka", str(self._folder / "server.properties")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "the Kafka broker to be ready", seconds=60)

    def prepare(self) -> None:
        """All that there has to be before it can start."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self.certificate.exists():
            self_signed(self.certificate)
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        store = self._folder / "store"
        if store.exists():
            return
        if self._joining is not None:
            self._format(properties, "--no-initial-controllers")
        elif _formatted:
            shutil.copytree(_formatted[0].name, store, dirs_exist_ok=True)
            meta = store / "meta.properties"
            meta.write_text(re.sub("(?<=cluster.id=).*", self._cluster, meta.read_text()))
        else:
            self._format(properties, "--standalone")
            _formatted.append(tempfile.TemporaryDirectory())
            shutil.copytree(store, _formatted[0].name, dirs_exist_ok=True)

    def _format(self, properties: Path, first: str) -> None:
        user = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        # "=": one identifier in 64 begins with a dash.
        format_ = ["format", first, f"--cluster-id={self._cluster}", "-c", str(properties), "--add-scram", user]
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *format_], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _java(self) -> list[str]:
        java, *classpath = java_command("kafka")
        return [java, *archive_flags([java, *classpath]), *_JAVA, *classpath]

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the Kafka broker ended:\n{self.log}"
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def admin(self) -> AdminClient:
        """A client that makes and deletes topics and groups; it logs nothing."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make_topics(
        self, *names: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Topics, ready to be written to and read from."""
        admin = self.admin()  # held: futures end with their client
        made = admin.create_topics([NewTopic(name, partitions, replicas, config=dict(config or {})) for name in names])
        for future in made.values():
            future.result(30)

        def ready() -> bool:
            topics = admin.list_topics(timeout=5).topics
            return all(
                name in topics
                and len(topics[name].partitions) == partitions
                and all(one.leader >= 0 for one in topics[name].partitions.values())
                for name in names
            )

        wait_until(ready, "the topics to be there")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all that it holds."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(20)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group that has no members."""
        admin = self.admin()
        admin.delete_consumer_groups([name])[name].result(20)

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        """Delete the records with offsets below ``before``, as retention would."""
        admin = self.admin()
        for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(20)

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Let USER not do ``operation`` on one topic or group; all else stays allowed."""
        everyone = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        nobody = AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.DENY
        )
        admin = self.admin()
        for future in admin.create_acls([everyone, nobody]).values():
            future.result(20)

    def produce(self, topic: str, number: int, *, partition: int = 0, timestamp: int = 0) -> None:
        """``number`` records on one partition; ``timestamp`` in milliseconds, 0 = now."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for index in range(number):
            producer.produce(topic, str(index).encode(), partition=partition, timestamp=timestamp)
        assert producer.flush(20) == 0

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let ``group`` have committed ``offsets`` (partition → offset) without consuming."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            for done in consumer.commit(offsets=wanted, asynchronous=False):
                assert done.error is None, done.error
        finally:
            consumer.close()


def self_signed(file: Path) -> None:
    """A key and its certificate for localhost, good for a day, in one PEM file."""
    command = [str(program("openssl")), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(file), "-out", str(file)], check=True, capture_output=True)


def prepare(server: KafkaServer) -> None:
    """Three queues with known contents.

    ``orders`` (two partitions, 6 + 4 records) of which group ``billing`` has committed 2 + 4; ``events`` (one
    partition, 3 records) of which ``audit`` has committed none but offset 0; ``unread`` (2 records), which no group
    reads.
    """
    server.make_topics("orders", partitions=2)
    server.make_topics("events", "unread")
    server.produce("orders", 6, partition=0)
    server.produce("orders", 4, partition=1)
    server.produce("events", 3)
    server.produce("unread", 2)
    server.commit("billing", "orders", {0: 2, 1: 4})
    server.commit("audit", "events", {0: 0})


def train() -> None:
    """Make the archive of Java's classes that spares each start of a broker half of its processor time; once."""
    target = archive_path(java_command("kafka"))
    if target.is_file():
        return
    with tempfile.TemporaryDirectory() as folder, replacing(target) as temporary:
        temporary.unlink()
        server = KafkaServer(Path(folder))
        server.patience = 600  # it writes it when it is told to end
        server.prepare()
        os.environ[TRAINING] = str(temporary)
        with server:
            prepare(server)
        assert temporary.is_file(), server.log
        temporary.chmod(0o644)


if __name__ == "__main__":
    train()
