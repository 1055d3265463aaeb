"""What goes wrong around a real node: credentials, permissions, its end and return; and answers that are none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pika
import pytest
from pydantic import ValidationError

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.rabbitmq import client as client_module
from collectors.rabbitmq.settings import RabbitBroker
from lake.errors import UserError
from tests.collectors.rabbitmq.conftest import Make
from tests.collectors.rabbitmq.reading import opened, read, read_until
from tests.support.facts import proves
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server that says this, once the overview was asked for; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            whole = body if "overview" not in self.path else json.dumps({"cluster_name": "it"}).encode()
            self.send_response(status if "overview" not in self.path else 200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


async def test_a_wrong_password_is_refused_credentials_and_is_not_repeated(broker: Make) -> None:
    with pytest.raises(CredentialsRefused) as refused:
        async with opened(broker(password="hunter2")):
            pass
    assert "hunter2" not in str(refused.value) and "monitoring" in str(refused.value)


async def test_a_user_without_the_tag_is_told_so(rabbit: RabbitServer, broker: Make) -> None:
    rabbit.add_user("untagged", "pw", "", default=".*")
    with pytest.raises(CredentialsRefused, match="Not management user"):
        async with opened(broker(user="untagged", password="pw")):
            pass


@proves("rabbitmq", "auth", "user and password")
@proves("rabbitmq", "cluster shapes", "virtual hosts")
async def test_a_monitoring_user_with_an_empty_permission_sees_that_virtual_host_alone(
    rabbit: RabbitServer, broker: Make
) -> None:
    rabbit.api("PUT", "vhosts/hidden")
    rabbit.api("PUT", "permissions/hidden/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    with rabbit.connect("hidden") as connection:
        connection.channel().queue_declare("secret", durable=True)
    with rabbit.connect() as connection:
        connection.channel().queue_declare("seen", durable=True)
    rabbit.add_user("watcher", "pw", "monitoring", default="^$")
    async with opened(broker(user="watcher", password="pw", api="management")) as source:
        found = await read_until(source, lambda found: found["seen"].depth == 0)
    assert "hidden/secret" not in found
    with pytest.raises(CredentialsRefused, match="not authorised"):
        async with opened(broker(user="watcher", password="pw", api="management", vhosts=["hidden"])) as source:
            await read(source)


async def test_a_secret_that_is_not_there_is_the_users_to_mend(broker: Make) -> None:
    missing = broker(password="").model_copy()
    with pytest.raises(UserError, match="RABBIT_PASSWORD"):
        async with opened(missing):
            pass


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"[{", "no JSON"),
        (200, b'{"name": "q"}', "no list"),
        (500, b"oops", "HTTP 500"),
        (302, b"", "redirect"),
    ],
)
async def test_an_answer_that_is_none_is_a_lost_connection(broker: Make, status: int, body: bytes, says: str) -> None:
    with answering(status, body, location="http://127.0.0.1:1/") as url:
        async with opened(broker(url=url, api="management")) as source:
            with pytest.raises(ConnectionLost, match=says):
                await read(source)


async def test_an_answer_without_end_is_not_read_to_its_end(broker: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "ANSWER_LIMIT", 1 << 20)
    with answering(200, b"[" + b" " * (2 << 20) + b"]") as url:
        async with opened(broker(url=url, api="management")) as source:
            with pytest.raises(ConnectionLost, match="larger than 1 MiB"):
                await read(source)


async def test_rows_that_make_no_sense_are_left_out_or_unread_and_spoil_no_other(broker: Make) -> None:
    rows = [
        [],
        {"name": 7, "vhost": "/"},
        {"name": "odd", "vhost": "/", "messages_ready": "many", "messages_unacknowledged": 0},
        {"name": "below", "vhost": "/", "messages_ready": -1, "messages_unacknowledged": 0},
        {"name": "fine", "vhost": "/", "messages_ready": 2, "messages_unacknowledged": 1, "message_stats": []},
    ]
    with answering(200, json.dumps(rows).encode()) as url:
        async with opened(broker(url=url, api="management")) as source:
            found = await read(source)
    assert {name: sample.depth for name, sample in found.items()} == {"odd": None, "below": None, "fine": 2}


def test_addresses_that_cannot_be_meant_are_refused() -> None:
    for wrong in (
        {"url": "http://guest:guest@here:15672"},
        {"url": "amqp://here"},
        {"amqp_url": "http://here"},
        {"url": "http://here", "tls": {"enabled": True}},
        {"url": "https://here", "amqp_url": "amqp://here", "tls": {"enabled": True}},
        {"user": "without"},
    ):
        with pytest.raises(ValidationError):
            RabbitBroker.model_validate(wrong)


@proves("rabbitmq", "auth", "TLS")
async def test_the_api_and_the_probe_speak_tls_and_believe_only_the_authority_they_are_given(
    rabbit: RabbitServer, broker: Make
) -> None:
    assert rabbit.certificates is not None
    secure = {
        "url": f"https://127.0.0.1:{rabbit.tls_api_port}",
        "amqp_url": f"amqps://127.0.0.1:{rabbit.tls_port}",
        "probe": {"interval": 0.05},
        "api": "management",
    }
    trusted = broker(**secure, tls={"enabled": True, "ca": rabbit.certificates.ca})
    async with opened(trusted) as source:
        await read_until(source, lambda found: found["sojourn.probe"].publish_latency_seconds is not None)
    with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
        async with opened(broker(**secure)):
            pass


async def test_a_node_that_ends_is_a_lost_connection_and_its_counters_begin_anew(
    rabbit: RabbitServer, broker: Make
) -> None:
    with rabbit.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        for _ in range(6):
            channel.basic_publish("", "kept", b"x", pika.BasicProperties(delivery_mode=2))
    probed = broker(amqp_url=rabbit.amqp_url, probe={"interval": 0.05})
    async with opened(probed) as source:
        await read_until(
            source, lambda found: found["kept"].published_total == 6 and found["sojourn.probe"].state == "running"
        )
        rabbit.kill()
        with pytest.raises(ConnectionLost):
            await source.read()
        with pytest.raises(ConnectionLost):
            await source.open()
        assert source._probe is not None
        probe = source._probe
        wait_until(lambda: probe.sample(0).state is None, "the probe to notice")
        assert "cannot publish" in probe.sample(0).unavailable["publish_latency_seconds"]
        rabbit.start()
        await source.open()
        found = await read_until(
            source, lambda found: found["kept"].depth == 6 and found["sojourn.probe"].state == "running"
        )
    assert found["kept"].published_total is None  # not an invented zero
