"""What runs here, for ``sojourn init``: brokers by their ports and the environment, asked in their own words.

Nothing is written to a broker, no password is tried but what the environment names, and none is ever kept.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lake.errors import SojournError
from sojourn.cli.options import part

#: Seconds that one question may take.
_PATIENCE = 1.0
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Found:
    """One broker: where it is, by what it was found, and what else is known of it.

    ``variable`` is the environment's name for its address where that is where it was found; ``secret``: whether
    credentials stand in there. ``layouts`` are the libraries whose queues a Redis server holds.
    """

    kind: str
    host: str
    port: int
    by: str
    variable: str | None = None
    user: str | None = None
    secret: bool = False
    tls: bool = False
    path: str = ""
    layouts: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def is_redis(address: Address) -> bool:
    """A Redis, or one that asks for a password first."""
    answer = _asked(address, b"PING\r\n")
    return answer.startswith((b"+PONG", b"-NOAUTH", b"-DENIED", b"-ERR max number"))


def is_nats(address: Address) -> bool:
    """NATS greets with INFO."""
    return _asked(address, b"").startswith(b"INFO {")


def is_postgres(address: Address) -> bool:
    """PostgreSQL answers SSLRequest with one letter."""
    return _asked(address, struct.pack("!ii", 8, 80877103)) in (b"S", b"N")


def is_kafka(address: Address) -> bool:
    """Kafka answers ApiVersions (version 0) under the number that was asked."""
    client = b"sojourn"
    request = struct.pack("!hhih", 18, 0, 4711, len(client)) + client
    answer = _asked(address, struct.pack("!i", len(request)) + request)
    return len(answer) >= 8 and struct.unpack("!i", answer[4:8])[0] == 4711


def is_rabbitmq(address: Address) -> bool:
    """The management API, which asks for credentials."""
    return b"rabbitmq" in _got(address, "/api/overview").lower()


def is_sqs(address: Address) -> bool:
    """A stand-in for SQS, such as ElasticMQ, answers a question of its protocol with XML of its namespace."""
    return b"queue.amazonaws.com" in _got(address, "/?Action=ListQueues&Version=2012-11-05")


#: Kind → its usual port on this machine, and how to know it.
PROBES: dict[str, tuple[int, Callable[[Address], bool]]] = {
    "redis": (6379, is_redis),
    "nats": (4222, is_nats),
    "kafka": (9092, is_kafka),
    "rabbitmq": (15672, is_rabbitmq),
    "postgres": (5432, is_postgres),
    "sqs": (9324, is_sqs),
}
#: Scheme of an address in the environment → kind, the port it means, and whether it is TLS.
_SCHEMES = {
    "redis": ("redis", 6379, False),
    "rediss": ("redis", 6379, True),
    "valkey": ("redis", 6379, False),
    "nats": ("nats", 4222, False),
    "amqp": ("rabbitmq", 5672, False),
    "amqps": ("rabbitmq", 5671, True),
    "postgres": ("postgres", 5432, False),
    "postgresql": ("postgres", 5432, False),
    "kafka": ("kafka", 9092, False),
}
_ADDRESS = re.compile(rf"^({'|'.join(_SCHEMES)})://", re.IGNORECASE)
_BOOTSTRAP = re.compile(r"^KAFKA_(BOOTSTRAP_SERVERS|BROKERS?|URL)$")


def look(environment: Mapping[str, str], at: Iterable[str] = ()) -> list[Found]:
    """Every broker that is found, each address once; what the environment says of one is not lost."""
    found: dict[tuple[str, str, int], Found] = {}
    for one in (*_named(environment), *_at(at), *_usual()):
        found.setdefault((one.kind, _same(one.host), one.port), one)
    return [_looked_into(one) for one in found.values()]


def _same(host: str) -> str:
    return "127.0.0.1" if host in ("localhost", "::1") else host


def _usual() -> Iterator[Found]:
    for kind, (port, knows) in PROBES.items():
        if knows(("127.0.0.1", port)):
            yield Found(kind, "127.0.0.1", port, f"port {port} of this machine")


def _at(addresses: Iterable[str]) -> Iterator[Found]:
    for address in addresses:
        parts = urlsplit(f"//{address}")
        if not parts.hostname or parts.port is None:
            raise SojournError(f"{address!r} is no host:port")
        for kind, (_, knows) in PROBES.items():
            if knows((parts.hostname, parts.port)):
                yield Found(kind, parts.hostname, parts.port, "the address you named")
                break


def _named(environment: Mapping[str, str]) -> Iterator[Found]:
    """Brokers whose addresses stand in variables such as REDIS_URL, with or without their credentials."""
    for name, value in sorted(environment.items()):
        if name.startswith("SOJOURN_"):
            continue
        if _BOOTSTRAP.match(name) and not _ADDRESS.match(value):
            with suppress(ValueError):
                parts = urlsplit(f"//{value.split(',')[0].strip()}")
                if parts.hostname:
                    yield Found("kafka", parts.hostname, parts.port or 9092, name, name)
        elif _ADDRESS.match(value):
            with suppress(ValueError):
                parts = urlsplit(value)
                kind, port, tls = _SCHEMES[parts.scheme.lower()]
                user, secret = parts.username or None, parts.password is not None
                if parts.hostname:
                    path = parts.path.strip("/") if re.fullmatch(r"/[\w.-]*", parts.path) else ""
                    yield Found(kind, parts.hostname, parts.port or port, name, name, user, secret, tls, path)
        elif name in ("AWS_REGION", "AWS_DEFAULT_REGION") and "AWS_ACCESS_KEY_ID" in environment:
            yield Found("sqs", f"sqs.{value}.amazonaws.com", 443, name, name, tls=True, path=value)


def _looked_into(found: Found) -> Found:
    """Which libraries keep queues on a Redis that lets us read; why not, where it does not."""
    from dataclasses import replace

    if found.kind != "redis" or found.secret:
        return found
    settings, reading = part("collectors.settings").CollectSettings(), part("sojourn.knowledge")
    layouts, why = [], None
    url = f"{'rediss' if found.tls else 'redis'}://{found.host}:{found.port}/{found.path or 0}"
    was_read = part("collectors.samples").was_read
    redis: Any = part("collectors.redis.settings")
    for name in redis.LAYOUTS:
        try:
            broker = redis.RedisBroker.model_validate({"url": url, name: {}})
            if any(was_read(one) for one in reading.read_once(settings, broker)):
                layouts.append(name)
        except (SojournError, ValueError) as error:
            why = str(error)
            break
    return replace(found, layouts=tuple(layouts), notes=() if why is None else (f"not looked into: {why}",))


def _asked(address: Address, question: bytes) -> bytes:
    """The first of what is answered; nothing where nobody answers."""
    with suppress(OSError), socket.create_connection(address, _PATIENCE) as connection:
        connection.settimeout(_PATIENCE)
        connection.sendall(question)
        return connection.recv(4096)
    return b""


def _got(address: Address, path: str) -> bytes:
    """Head and body of what is answered over HTTP, whatever the status."""
    host, port = address
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host}:{port}{path}", timeout=_PATIENCE) as answer:
            return bytes(answer.headers.as_bytes()) + bytes(answer.read(4096))
    except urllib.error.HTTPError as error:
        return error.headers.as_bytes() + bytes(error.read(4096))
    except (OSError, ValueError, http.client.HTTPException):
        return b""
