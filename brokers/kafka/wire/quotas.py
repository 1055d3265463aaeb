"""Client quotas: what is set for a user or a client id, and setting it. Layouts: Kafka's DescribeClientQuotas and
AlterClientQuotas, version 1."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from brokers.kafka.wire.codec import END, Reader, Request, array, text

DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
_DOUBLE = struct.Struct(">d")


def describe_quotas_request(entity: Mapping[str, str]) -> Request:
    """Asks for the quotas of exactly ``entity``: ``user`` and ``client-id`` → name."""
    parts = [text(kind) + b"\0" + text(name) + END for kind, name in entity.items()]
    return Request(DESCRIBE_QUOTAS, 1, array(parts) + b"\x01" + END)


def read_quotas(answer: Reader) -> tuple[int, str, dict[str, float]]:
    """Error, why, and quota → value."""
    answer.integer()
    error, why = answer.short(), answer.text()
    found: dict[str, float] = {}
    for _ in range(answer.count()):
        _skip_entity(answer)
        for _ in range(answer.count()):
            name = answer.text()
            (found[name],) = _DOUBLE.unpack(answer.take(8))
            answer.tags()
        answer.tags()
    return error, why, found


def alter_quota_request(entity: Mapping[str, str], quota: str, value: float | None) -> Request:
    """Sets one quota of ``entity``; None removes it."""
    parts = array(text(kind) + text(name) + END for kind, name in entity.items())
    removed = b"\x01" if value is None else b"\0"
    change = array([text(quota) + _DOUBLE.pack(value or 0.0) + removed + END])
    return Request(ALTER_QUOTAS, 1, array([parts + change + END]) + b"\0" + END)


def read_altered(answer: Reader) -> tuple[int, str]:
    """Error and why, of the first entity that has one."""
    answer.integer()
    found = (0, "")
    for _ in range(answer.count()):
        error, why = answer.short(), answer.text()
        _skip_entity(answer)
        answer.tags()
        found = found if found[0] else (error, why)
    return found


def _skip_entity(answer: Reader) -> None:
    for _ in range(answer.count()):
        answer.text()
        answer.text()
        answer.tags()
