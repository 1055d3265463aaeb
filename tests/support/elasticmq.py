"""A real server of the SQS protocol (ElasticMQ) on the loopback, ended by its own process id."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.jars import java_command
from tests.support.ports import free_ports
from tests.support.process import HttpProcess
from tests.support.waiting import wait_until

_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CONFIG = """
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = relaxed }}
rest-stats.enabled = false
"""


class Refused(Exception):
    """The server answered with an error; its type is the text."""


class ElasticMq(HttpProcess):
    """One server. Its port outlasts ``kill`` and ``start``; queues and messages, which it keeps in memory, do not."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)

    def settings(self, **changes: Any) -> dict[str, Any]:
        """A broker in ``[[collect.brokers]]`` that watches it closely; the server takes any credentials."""
        self._folder.mkdir(parents=True, exist_ok=True)
        given = {}
        for name in ("access_key_id", "secret_access_key"):
            (self._folder / name).write_text("any")
            given[name] = {"file": str(self._folder / name)}
        closely = {"sample_interval": 0.2, "list_interval": 0.0, "convergence_seconds": 0.0}
        return {"kind": "sqs", "name": "mq", "endpoint": self.url, **given, **closely, **changes}

    def start(self) -> None:
        """Start the server and wait until it lists its queues."""
        assert self._process is None, "it runs already"
        java, *path = java_command("elasticmq")
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "elasticmq.conf"
        config.write_text(_CONFIG.format(port=self.port))
        command = [java, *_JVM, f"-Dconfig.file={config}", *path, "org.elasticmq.server.Main"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "ElasticMQ to be ready", seconds=60)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"ElasticMQ ended:\n{self.log}"
        try:
            self.ask("ListQueues")
        except OSError:
            return False
        return True

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """The answer to one action of the protocol; Refused where the server says no. It checks no signature."""
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        request = urllib.request.Request(f"{self.url}/", json.dumps(arguments).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return dict(json.loads(answer.read() or b"{}"))
        except urllib.error.HTTPError as error:
            raise Refused(json.loads(error.read()).get("__type", "")) from None

    def make(self, queue: str, **attributes: str) -> str:
        """Make a queue as its owner does; its address."""
        return str(self.ask("CreateQueue", QueueName=queue, Attributes=attributes)["QueueUrl"])

    def send(self, queue: str, number: int, *, delay: int = 0) -> None:
        """Put ``number`` messages into ``queue``."""
        for index in range(number):
            extra: dict[str, Any] = {"DelaySeconds": delay} if delay else {}
            if queue.endswith(".fifo"):
                extra = {"MessageGroupId": "one", "MessageDeduplicationId": str(index)}
            self.ask("SendMessage", QueueUrl=self.address(queue), MessageBody=f"message {index}", **extra)

    def receive(self, queue: str, number: int) -> list[Mapping[str, Any]]:
        """Take up to ten messages, which are then in flight."""
        answer = self.ask("ReceiveMessage", QueueUrl=self.address(queue), MaxNumberOfMessages=number)
        return list(answer.get("Messages", ()))

    def redrive_to(self, queue: str, receives: int = 3) -> str:
        """The redrive policy that makes ``queue`` the dead-letter queue of the one that has it."""
        answer = self.ask("GetQueueAttributes", QueueUrl=self.address(queue), AttributeNames=["QueueArn"])
        return json.dumps({"deadLetterTargetArn": answer["Attributes"]["QueueArn"], "maxReceiveCount": receives})

    def address(self, queue: str) -> str:
        """The address of a queue."""
        return f"{self.url}/000000000000/{queue}"


def prepare(server: ElasticMq) -> None:
    """Three queues with known contents: ``prepared-orders`` with three messages waiting and two in flight, its
    dead-letter queue ``prepared-dead`` with one, ``prepared-invoices.fifo`` with two."""
    server.make("prepared-dead")
    server.make("prepared-orders", RedrivePolicy=server.redrive_to("prepared-dead"), VisibilityTimeout="600")
    server.make("prepared-invoices.fifo", FifoQueue="true")
    for queue, number in (("prepared-dead", 1), ("prepared-orders", 5), ("prepared-invoices.fifo", 2)):
        server.ask("PurgeQueue", QueueUrl=server.address(queue))
        server.send(queue, number)
    server.receive("prepared-orders", 2)
