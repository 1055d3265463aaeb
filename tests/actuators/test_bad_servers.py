"""A server that hangs, or answers what makes no sense, is an error with words in it, for every actuator and mover."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from actuators import registry
from actuators.base import Demand, filled
from actuators.movers import registry as movers
from lake.errors import SojournError

DEMAND = Demand("mq", "orders", "t0", 20.0, 20.0, datetime(2030, 1, 1, tzinfo=UTC), "noisy", "a1")
NONSENSE: dict[str, bytes] = {
    "lines": b"-ERR what?\r\n" * 3,
    "http": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1}",
    "list": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]",
    "failure": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
    "bytes": bytes(range(256)),
    "info": b'INFO {"max_payload": "x"}\r\n',
}


@contextmanager
def bad_server(answer: bytes | None) -> Iterator[int]:
    """A server that answers ``answer`` to all that comes, or nothing; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            if answer is not None and answer.startswith(b"INFO"):
                connection.sendall(answer)
            while connection.recv(65536):
                if answer is not None:
                    connection.sendall(answer)

    def work() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                held.append(connection)
                threading.Thread(target=serve, args=[connection], daemon=True).start()

    threading.Thread(target=work, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        for connection in held:
            connection.close()


def actuator(kind: str, port: int) -> dict[str, Any]:
    http, where = f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"
    consumer = {"url": f"nats://{where}", "consumer": "of-{tenant}"}
    kinds: dict[str, dict[str, Any]] = {
        "redis_key": {"url": f"redis://{where}"},
        "nats_kv": {"url": f"nats://{where}"},
        "nats_pause": consumer,
        "nats_max_ack_pending": consumer | {"service_seconds": 1.0},
        "rabbitmq_policy": {"url": http},
        "rabbitmq_shovel": {"url": http},
        "kafka_quota": {"bootstrap": where, "entity_user": "{tenant}", "message_bytes": 9, "timeout_seconds": 0.4},
        "kafka_topic": {"bootstrap": where, "timeout_seconds": 0.4},
        "webhook": {"url": http + "/{tenant}"},
    }
    return kinds[kind] | {"kind": kind, "name": "one", "timeout": 0.4}


NETWORKED = [kind for kind in registry.KINDS.places if kind != "file"]


@pytest.mark.parametrize("answer", [None, *NONSENSE])
@pytest.mark.parametrize("kind", NETWORKED)
def test_an_actuator_says_what_is_wrong_with_its_server(kind: str, answer: str | None) -> None:
    with bad_server(None if answer is None else NONSENSE[answer]) as port:
        one = registry.make(registry.KINDS.chosen(actuator(kind, port)))
        with pytest.raises(SojournError) as raised:
            one.write(one.place(DEMAND), one.value(DEMAND), 60.0)
            there = one.read(one.place(DEMAND))
            if there != one.value(DEMAND):
                raise SojournError("not what was written: Leased says so")
        assert str(raised.value)


@pytest.mark.parametrize("answer", [None, *NONSENSE])
@pytest.mark.parametrize("kind", movers.KINDS.places)
def test_a_mover_says_what_is_wrong_with_its_server(
    kind: str, answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    scheme = {"nats": "nats", "rabbitmq": "amqp"}.get(kind, "redis")
    with bad_server(None if answer is None else NONSENSE[answer]) as port:
        where = {"url": f"{scheme}://127.0.0.1:{port}"}
        if kind == "sqs":
            where = {"endpoint": f"http://127.0.0.1:{port}", "request_timeout": 0.4}  # type: ignore[dict-item]
        one = movers.KINDS.make(movers.KINDS.chosen({"kind": kind, "name": "mq", "timeout": 0.4, **where}))
        with pytest.raises(SojournError) as raised:
            one.move("orders", "aside", lambda message: True, 10)
        assert str(raised.value)


def test_names_that_look_like_templates_are_names() -> None:
    named = Demand("{tenant}", "{x}", "a{queue}b", 1.0, 1.0, DEMAND.valid_until, "", "")
    assert filled("{broker}/{queue}/{tenant}/{other}/{", named) == "{tenant}/{x}/a{queue}b/{other}/{"


@pytest.mark.parametrize("kind", ["nats_pause", "nats_max_ack_pending"])
@pytest.mark.parametrize("tenant", ["a.b", "a b", ">", "*", "a/b", ""])
def test_a_tenant_whose_name_no_consumer_can_have_is_refused(kind: str, tenant: str) -> None:
    one = registry.make(registry.KINDS.chosen(actuator(kind, 9) | {"consumer": "{tenant}"}))
    with pytest.raises(SojournError, match="cannot be the name"):
        one.place(Demand("mq", "orders", tenant, 1.0, 1.0, DEMAND.valid_until, "", ""))


def test_keys_of_different_tenants_are_different() -> None:
    tenants = ["a.b", "a:b", "a b", "a=2Eb", "a%2Eb", "", "é", "a/b", "*"]
    for kind in ("redis_key", "nats_kv", "kafka_topic", "webhook"):
        one = registry.make(registry.KINDS.chosen(actuator(kind, 9)))
        places = {one.place(Demand("mq", "q", name, 1.0, 1.0, DEMAND.valid_until, "", "")) for name in tenants}
        assert len(places) == len(tenants)
