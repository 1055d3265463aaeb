"""The bodies of requests → messages of OTLP; only here are bytes from outside parsed."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from brokers.texts import loads
from collectors.receive.lean import LeanRequest
from collectors.records import RAW_LIMIT

_IDS = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})


class Malformed(ValueError):
    """A body that is no request."""


def protobuf(body: bytes) -> Any:
    """The request in ``body``, a :data:`collectors.receive.lean.LeanRequest`; Malformed."""
    try:
        return LeanRequest.FromString(body)
    except DecodeError:
        raise Malformed("not an ExportTraceServiceRequest in protobuf") from None


def as_json(body: bytes) -> Any:
    """The same from OTLP's JSON, in which ids are hexadecimal; Malformed."""
    try:
        request = loads(body)
        whole = json_format.ParseDict(_with_ids(request), ExportTraceServiceRequest(), ignore_unknown_fields=True)
        return LeanRequest.FromString(whole.SerializeToString())
    except (ValueError, TypeError, RecursionError, AttributeError, json_format.ParseError):
        raise Malformed("not an ExportTraceServiceRequest in JSON") from None


def _with_ids(value: Any) -> Any:
    """``value`` with its ids in Base64, as protobuf's own JSON has bytes."""
    if isinstance(value, dict):
        return {
            name: base64.b64encode(bytes.fromhex(inner)).decode()
            if name in _IDS and isinstance(inner, str)
            else _with_ids(inner)
            for name, inner in value.items()
        }
    return [_with_ids(inner) for inner in value] if isinstance(value, list) else value


def shown(span: Any) -> str:
    """A refused span as text, for the table of rejected records."""
    try:
        return str(json_format.MessageToJson(Span.FromString(span.SerializeToString()), indent=None))
    except DecodeError:
        return shown_bytes(span.SerializeToString())


def shown_bytes(body: bytes, most: int = RAW_LIMIT) -> str:
    """The beginning of a refused body as text; bytes that are none are written as escapes."""
    return body[:most].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
