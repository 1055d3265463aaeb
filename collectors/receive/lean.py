"""OTLP's requests, parsed no deeper than needed: what is the same in most spans is decoded once and remembered.

Protobuf writes a nested message as it writes bytes. This schema therefore reads the same requests as OTLP's own, but
leaves each attribute, link, event and status as the bytes that it is: most spans of a service have the same ones.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from collectors.receive.attributes import FACTS, REPORTED
from collectors.receive.values import LONGEST

#: Remembered attributes, and the longest that is: their values come from outside.
_MOST, _LONGEST = 50_000, 200

OTHER = "other names"
#: How the encoding of a message's id begins, up to the length of its value, and where the id itself does.
_MESSAGE_ID = KeyValue(key="messaging.message.id").SerializeToString() + b"\x12"
_AT = len(_MESSAGE_ID) + 3
#: Length of the whole encoding → all of it but the id, for ids so short that each length before them is a single byte.
_HEADS = {_AT + length: _MESSAGE_ID + bytes((length + 2, 10, length)) for length in range(1, 100)}

_BYTES, _INT32, _FIXED32, _FIXED64, _MESSAGE = 12, 5, 7, 6, 11
_ONE, _MANY = 1, 3
#: Message → (field, number, type, label, message type). Numbers: opentelemetry/proto/trace/v1/trace.proto.
_SCHEMA: dict[str, tuple[tuple[str, int, int, int, str], ...]] = {
    "Span": (
        ("trace_id", 1, _BYTES, _ONE, ""),
        ("span_id", 2, _BYTES, _ONE, ""),
        ("trace_state", 3, _BYTES, _ONE, ""),
        ("parent_span_id", 4, _BYTES, _ONE, ""),
        ("name", 5, _BYTES, _ONE, ""),
        ("kind", 6, _INT32, _ONE, ""),
        ("start_time_unix_nano", 7, _FIXED64, _ONE, ""),
        ("end_time_unix_nano", 8, _FIXED64, _ONE, ""),
        ("attributes", 9, _BYTES, _MANY, ""),
        ("events", 11, _BYTES, _MANY, ""),
        ("links", 13, _BYTES, _MANY, ""),
        ("status", 15, _BYTES, _ONE, ""),
        ("flags", 16, _FIXED32, _ONE, ""),
    ),
    "ScopeSpans": (("spans", 2, _MESSAGE, _MANY, "Span"),),
    "ResourceSpans": (("resource", 1, _BYTES, _ONE, ""), ("scope_spans", 2, _MESSAGE, _MANY, "ScopeSpans")),
    "Request": (("resource_spans", 1, _MESSAGE, _MANY, "ResourceSpans"),),
}


def _request_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="sojourn/lean_otlp.proto", package="sojourn.otlp", syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label, of in fields:
            made = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                made.type_name = f".sojourn.otlp.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sojourn.otlp.Request"))


LeanRequest: Any = _request_class()


class Attributes(dict[bytes, tuple[str, Any]]):
    """Encoded attribute → (fact, value), or ("", None) for one that is not read. DecodeError if it is none.

    Under a fact's other names it is (OTHER, (place among the names, fact, value)): the least place counts.

    Looking up what is not there decodes it, and remembers it unless it is long or names a single message.
    """

    def __missing__(self, encoded: bytes) -> tuple[str, Any]:
        head = _HEADS.get(len(encoded))
        if head is not None and encoded.startswith(head):  # each message has its own: cut it out
            try:
                return "message_id", encoded[_AT:].decode()
            except UnicodeDecodeError:
                raise DecodeError from None
        pair = KeyValue.FromString(encoded)
        known = FACTS.get(pair.key)
        if known is None:
            decoded: tuple[str, Any] = ("", None)
        else:
            fact, place, numeric, single = known
            value = _integer(pair.value) if numeric else pair.value.string_value or _text(pair.value)
            if value is None or (len(encoded) > LONGEST and fact not in REPORTED):
                decoded = ("", None)
            else:
                decoded = (fact, value) if place == 0 else (OTHER, (place, fact, value))
            if single:
                return decoded
        if len(encoded) <= _LONGEST:
            if len(self) >= _MOST:
                self.clear()
            self[encoded] = decoded
        return decoded


def resource(encoded: bytes) -> tuple[str | None, str | None]:
    """(service.name, sojourn.tenant) of a resource."""
    told = {pair.key: pair.value.string_value for pair in Resource.FromString(encoded).attributes}
    service, tenant = (told.get(name) or None for name in ("service.name", "sojourn.tenant"))
    return service and service[:LONGEST], tenant and tenant[:LONGEST]


def _integer(value: Any) -> int | None:
    """A whole number, however it was written; None for what is none."""
    which = value.WhichOneof("value")
    if which == "int_value":
        return int(value.int_value)
    if which == "string_value":
        text = value.string_value.strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    if which == "double_value" and abs(value.double_value) < 2**63 and float(value.double_value).is_integer():
        return int(value.double_value)
    return None


def _text(value: Any) -> str | None:
    """A number given where a text is expected; None for everything else that is not a text."""
    return str(value.int_value) if value.WhichOneof("value") == "int_value" else None


__all__ = ["OTHER", "Attributes", "DecodeError", "LeanRequest", "resource"]
