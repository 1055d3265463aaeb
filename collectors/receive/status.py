"""How a refusal looks on the wire: google.rpc.Status with RetryInfo, of which only these few fields are needed."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The codes of gRPC that senders act on."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def encoded(code: Code, message: str, retry_seconds: int | None = None) -> bytes:
    """A google.rpc.Status; with ``retry_seconds`` it holds a RetryInfo, without it the sender is to give up.

    Source: https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto and error_details.proto.
    """
    status = _number(1, code) + _bytes(2, message.encode("utf-8", "replace"))
    if retry_seconds is not None:
        delay = _bytes(1, _number(1, retry_seconds))
        status += _bytes(3, _bytes(1, _RETRY_INFO) + _bytes(2, delay))
    return status


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
