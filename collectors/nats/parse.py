"""What the broker's messages say, as records: pure functions over what the client received."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from brokers.texts import loads

METRIC_ACK = "$JS.EVENT.METRIC.CONSUMER.ACK."
ADVISORY = "$JS.EVENT.ADVISORY.CONSUMER."
NAKED, TERMINATED, MAX_DELIVERIES, CREATED = "MSG_NAKED", "MSG_TERMINATED", "MAX_DELIVERIES", "CREATED"


class Malformed(ValueError):
    """The message is not what the broker sends there; says which part of it."""


class Arrival(NamedTuple):
    """A message was stored in a stream; times in microseconds on the broker's clock."""

    stream: str
    sequence: int
    stored_at: int
    subject: str
    headers: Mapping[str, str]


class Acknowledged(NamedTuple):
    """An attempt ended well: delivered at ``delivered_at``, acknowledged ``seconds`` later."""

    stream: str
    consumer: str
    sequence: int
    deliveries: int
    delivered_at: int
    seconds: float


class Advisory(NamedTuple):
    """A message was refused (``MSG_NAKED``), given up (``MSG_TERMINATED``) or delivered too often."""

    kind: str
    stream: str
    consumer: str
    sequence: int
    deliveries: int
    at: int
    reason: str | None


class ConsumerCreated(NamedTuple):
    """A stream has a new consumer."""

    stream: str
    consumer: str


Record = Arrival | Acknowledged | Advisory | ConsumerCreated


_EVENT, _METRIC, _ADVISORY = b"$JS.EVENT.", METRIC_ACK.encode(), ADVISORY.encode()
_HEADER = re.compile(r"([^:\r\n]+):[ \t]*([^\r\n]*)")
#: An acknowledgement's metric as the server writes it; one that it writes otherwise is read as the JSON it is.
_PLAIN_ACK = re.compile(
    rb'"timestamp":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)","stream":"([^"\\\x00-\x1f]+)",'
    rb'"consumer":"([^"\\\x00-\x1f]+)","consumer_seq":\d+,"stream_seq":([1-9]\d*),"ack_time":(\d+),'
    rb'"deliveries":([1-9]\d*)(?:,"domain":"[^"\\]*")?\}$'
)


def parse(subject: bytes, headers: bytes, data: bytes) -> Record | None:
    """The record that a message of the tap holds; None for advisories that do not matter here. Raises Malformed.

    ``headers`` is the message's whole header block, empty where it has none.
    """
    if not subject.startswith(_EVENT):
        return _arrival(headers)
    if subject.startswith(_METRIC):
        plain = _PLAIN_ACK.search(data)
        return _acknowledged(data) if plain is None else _plainly_acknowledged(*plain.groups())
    kind = subject.removeprefix(_ADVISORY).split(b".", 1)[0].decode("utf-8", "replace")
    if kind == CREATED:
        body = _json(data)
        return ConsumerCreated(_text(body, "stream"), _text(body, "consumer"))
    if kind not in (NAKED, TERMINATED, MAX_DELIVERIES):
        return None
    body = _json(data)
    reason = body.get("reason")
    return Advisory(
        kind,
        _text(body, "stream"),
        _text(body, "consumer"),
        _positive(body, "stream_seq"),
        _positive(body, "deliveries"),
        _nanoseconds(_text(body, "timestamp")) // 1000,
        reason if isinstance(reason, str) and reason else None,
    )


def _plainly_acknowledged(
    timestamp: bytes, stream: bytes, consumer: bytes, sequence: bytes, took: bytes, deliveries: bytes
) -> Acknowledged:
    nanoseconds = int(took)
    try:
        return Acknowledged(
            stream.decode(),
            consumer.decode(),
            int(sequence),
            int(deliveries),
            (_nanoseconds(timestamp.decode()) - nanoseconds) // 1000,
            nanoseconds / 1e9,
        )
    except UnicodeDecodeError as error:
        raise Malformed(f"not JSON: {error}") from None


def _acknowledged(data: bytes) -> Acknowledged:
    body = _json(data)
    took = _integer(body, "ack_time")
    if took < 0:
        raise Malformed("ack_time is negative")
    return Acknowledged(
        _text(body, "stream"),
        _text(body, "consumer"),
        _positive(body, "stream_seq"),
        _positive(body, "deliveries"),
        (_nanoseconds(_text(body, "timestamp")) - took) // 1000,
        took / 1e9,
    )


def _arrival(block: bytes) -> Arrival:
    # Of a header that is there twice the last counts: the server puts its own behind the publisher's.
    headers = dict(_HEADER.findall(block.decode("utf-8", "replace"), 8))
    try:
        sequence = int(headers["Nats-Sequence"])
        stored_at = microseconds(headers["Nats-Time-Stamp"])
        arrival = Arrival(headers["Nats-Stream"], sequence, stored_at, headers["Nats-Subject"], headers)
    except KeyError as error:
        raise Malformed(f"header {error.args[0]} is missing") from None
    except ValueError as error:
        raise Malformed(f"a republished message's headers cannot be read: {error}") from None
    if sequence < 1:
        raise Malformed("header Nats-Sequence is below 1")
    return arrival


def headers_of(raw: bytes) -> dict[str, str]:
    """The headers of a stored message, from the block in which the server keeps them; of a repeated one, the first."""
    headers: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name, value.strip())
    return headers


def matches(subject: str, pattern: str) -> bool:
    """Whether a subject is one of those that ``pattern`` (with ``*`` and ``>``) names."""
    tokens, wanted = subject.split("."), pattern.split(".")
    for index, want in enumerate(wanted):
        if want == ">":
            return len(tokens) > index
        if index >= len(tokens) or want not in ("*", tokens[index]):
            return False
    return len(tokens) == len(wanted)


def microseconds(text: str) -> int:
    """Microseconds since 1970 of an RFC 3339 time as the server writes it, with up to nine decimals."""
    return _nanoseconds(text) // 1000


def _nanoseconds(text: str) -> int:
    if text.endswith("Z"):
        try:
            whole = _second(text[:19])
            decimals = text[20:-1]
            if not decimals and len(text) == 20:
                return whole
            if text[19] == "." and decimals.isdigit():
                return whole + int(decimals) * _UNITS[len(decimals)]
        except (ValueError, IndexError):
            pass
    raise Malformed(f"{text[:64]!r} is no UTC time")


#: Nanoseconds of the last of so many decimals.
_UNITS: tuple[int, ...] = tuple(10 ** (9 - decimals) for decimals in range(10))


@lru_cache(maxsize=1024)
def _second(text: str) -> int:
    """Nanoseconds since 1970 of a time without decimals."""
    if len(text) != 19 or text[10] != "T":
        raise ValueError(text)
    return round(datetime.fromisoformat(text + "+00:00").timestamp()) * 1_000_000_000


def _json(data: bytes) -> dict[str, Any]:
    try:
        body = loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Malformed("not a JSON object")
    return body


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise Malformed(f"{key} is no text")
    return value


def _integer(body: dict[str, Any], key: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{key} is no whole number")
    return value


def _positive(body: dict[str, Any], key: str) -> int:
    value = _integer(body, key)
    if value < 1:
        raise Malformed(f"{key} is below 1")
    return value
