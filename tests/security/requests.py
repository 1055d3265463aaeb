"""Hostile requests as data, each (name, bytes as they go over the wire): for tests of a listener, and for a fuzzer.

Sent to any HTTP listener of ours, none may end the process, give a traceback, or be answered as if it were proper;
a connection that is not answered is closed. ``bodies`` are whole ones that stand behind proper headers.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

JSON, PROTOBUF = "application/json", "application/x-protobuf"


def head(
    path: str = "/v1/events",
    *,
    method: str = "POST",
    host: str | bytes | None = "127.0.0.1",
    kind: str | None = JSON,
    length: str | int | None = None,
    more: tuple[bytes, ...] = (),
) -> bytes:
    """The head of a request; headers that are None are left out, ``more`` are lines of their own."""
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1")]
    if host is not None:
        lines.append(b"Host: " + (host if isinstance(host, bytes) else host.encode("latin-1")))
    if kind is not None:
        lines.append(b"Content-Type: " + kind.encode("latin-1"))
    if length is not None:
        lines.append(f"Content-Length: {length}".encode())
    return b"\r\n".join([*lines, *more, b"", b""])


def request(body: bytes = b"{}", **options: Any) -> bytes:
    """A whole request with ``body``."""
    return head(length=len(body), **options) + body


_HOSTS: tuple[str | bytes, ...] = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:4318",
    "evil.example#127.0.0.1",
    "evil.example@127.0.0.1",
    "127.0.0.1@evil.example",
    "127.0.0.1:0x50",
    "127.0.0.1:99999",
    "127.0.0.1:",
    "0.0.0.0",
    "0",
    "2130706433",
    "0x7f000001",
    "[::ffff:127.0.0.1",
    "[::1]evil",
    "[::1",
    "[]",
    "",
    " ",
    "..",
    "a" * 300,
    b"\xff\xfe",
    b"localhost\x00",
    "localhost, evil.example",
)
_ORIGINS = (
    b"https://evil.example",
    b"http://localhost.evil.example",
    b"http://127.0.0.1:1",
    b"https://127.0.0.1",
    b"null",
    b"NULL",
    b"",
    b"http://[::1",
    b"http://127.0.0.1:99999",
    b"http://127.0.0.1/path",
    b"file://",
    b"chrome-extension://abc",
    b"http://\xff",
    b"//127.0.0.1",
)
_SITES = (b"cross-site", b"same-site")
_TYPES = (
    None,
    "",
    "text/plain",
    "text/plain; charset=application/json",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "application/json, text/plain",
    "application/jsonp",
    "\xff",
)


def forged(sent: Callable[..., bytes] = request, *, typed: bool = True) -> list[tuple[str, bytes]]:
    """Whole requests that must be refused by their headers alone, as ``sent`` makes them of ``host``, ``kind`` and
    ``more``; without those of wrong types where a request has no body."""
    made = [(f"host {host!r}", sent(host=host)) for host in _HOSTS]
    made += [("no host", sent(host=None)), ("two hosts", sent(more=(b"Host: evil.example",)))]
    made += [(f"origin {origin!r}", sent(more=(b"Origin: " + origin,))) for origin in _ORIGINS]
    made += [("two origins", sent(more=(b"Origin: http://127.0.0.1", b"Origin: https://evil.example")))]
    made += [(f"sec-fetch-site {site!r}", sent(more=(b"Sec-Fetch-Site: " + site,))) for site in _SITES]
    if typed:
        made += [(f"type {kind!r}", sent(kind=kind)) for kind in _TYPES]
        made += [("two types", sent(more=(b"Content-Type: text/plain",)))]
    return made


FORGED = forged()

#: Bytes that are no request, or half of one.
BROKEN: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("half a method", b"PO"),
    ("half a header line", b"POST /v1/events HTTP/1.1\r\nHost: 127.0"),
    ("no end of headers", head()[:-2]),
    ("a hello of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
    ("a preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
    ("a header without end", b"POST / HTTP/1.1\r\nHost: " + b"a" * 200_000),
    ("headers without end", b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 40_000),
    ("a folded header", head(more=(b"X: a", b" b"))),
    ("a bare line feed", head().replace(b"\r\n", b"\n")),
    ("a zero byte", head(more=(b"X: a\x00b",))),
    ("a length below zero", head(length=-1)),
    ("a length with a sign", head(length="+2") + b"{}"),
    ("a length of many digits", head(length="9" * 40)),
    ("a length that is no number", head(length="²")[:-4].replace("²".encode(), b"\xc2\xb2") + b"\r\n\r\n"),
    ("two lengths", head(length=2, more=(b"Content-Length: 3",)) + b"{}"),
    ("length and chunks", head(length=2, more=(b"Transfer-Encoding: chunked",)) + b"0\r\n\r\n"),
    ("chunks twice", head(more=(b"Transfer-Encoding: chunked, chunked",)) + b"0\r\n\r\n"),
    ("a chunk that is no number", head(more=(b"Transfer-Encoding: chunked",)) + b"zz\r\n"),
    ("a chunk without end", head(more=(b"Transfer-Encoding: chunked",)) + b"ffffffffffffffff\r\nx"),
    ("half a body", head(length=1_000) + b'{"version"'),
    ("half a chunk", head(more=(b"Transfer-Encoding: chunked",)) + b"10\r\n{}"),
    ("an upgrade", head(method="GET", more=(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: x"))),
    ("an absolute target", request(path="http://evil.example/v1/events")),
    ("a connect", head(path="evil.example:443", method="CONNECT")),
    ("a path with escapes", request(path="/v1/%2e%2e/%00%ff")),
    ("smuggled", request(b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n", more=(b"Transfer-Encoding : chunked",))),
]


def broken(path: str) -> list[tuple[str, bytes]]:
    """The same at another path."""
    return [(name, sent.replace(b"/v1/events", path.encode("latin-1"))) for name, sent in BROKEN]


#: A proper alert and a proper silence.
ALERT = {
    "labels": {"alertname": "Down", "queue": "q"},
    "annotations": {"summary": "s"},
    "startsAt": "2026-01-01T00:00:00Z",
    "generatorURL": "http://localhost/",
}
SILENCE = {
    "matchers": [{"name": "queue", "value": "q", "isRegex": False, "isEqual": True}],
    "startsAt": "2026-01-01T00:00:00Z",
    "endsAt": "2027-01-01T00:00:00Z",
    "createdBy": "ann",
    "comment": "c",
}
#: What makes a request one for a websocket.
UPGRADE = (
    *(b"Connection: Upgrade", b"Upgrade: websocket"),
    *(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="),
)

_EVENT = {
    "event_type": "enqueued",
    "broker": "nats",
    "queue": "q",
    "message_id": "m",
    "event_id": "e",
    "occurred_at": 1_780_000_000_000_000,
}
#: Half of a surrogate pair, as JSON escapes it, alone and with a letter.
SURROGATES = ("\\ud800", "\\ud800x", "\\udfff", "x\\uDBFF", "\\udc00\\ud800")


def events(**lists: Any) -> dict[str, Any]:
    """A request of the client."""
    return {"version": 1, "sender": "s", "sequence": 1, **lists}


def _text(value: Any, surrogate: str = "") -> bytes:
    return json.dumps(value).replace("SURROGATE", surrogate).encode()


def _span(**values: Any) -> dict[str, Any]:
    given = {"messaging.system": "nats", "messaging.destination.name": "q", **values}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in given.items()]
    times = {"startTimeUnixNano": "1780000000000000000", "endTimeUnixNano": "1780000000000000001"}
    span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "kind": 4, "name": "s", **times}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": attributes}]}]}]}


def _deep(depth: int, left: bytes, right: bytes) -> bytes:
    return left * depth + right * depth


def bodies() -> list[tuple[str, str, str, str, bytes]]:
    """(name, path, content type, content encoding or "", body): packed when they are asked for, not at each import."""
    return [
        *(
            (f"{name} {surrogate}", "/v1/events", JSON, "", _text(value, surrogate))
            for surrogate in SURROGATES
            for name, value in (
                ("a sender", events(sender="SURROGATE")),
                ("a key of a request", events(SURROGATE=1)),
                ("a key of an event", events(events=[{**_EVENT, "SURROGATE": "x"}])),
                ("a queue", events(events=[{**_EVENT, "queue": "SURROGATE", "event_id": "queue SURROGATE"}])),
                ("an event id", events(events=[{**_EVENT, "event_id": "SURROGATE"}])),
                ("a tenant", events(events=[{**_EVENT, "tenant": "SURROGATE", "event_id": "tenant SURROGATE"}])),
                ("an event type", events(events=[{**_EVENT, "event_type": "SURROGATE"}])),
                ("a key of a summary", events(summaries=[{"SURROGATE": 1}])),
                ("a queue of a poll", events(polls=[{"broker": "b", "queue": "SURROGATE", "polls": 1}])),
            )
        ),
        *(
            (f"{name} {surrogate}", "/v1/traces", JSON, "", _text(value, surrogate))
            for surrogate in SURROGATES
            for name, value in (
                ("an attribute", _span(**{"sojourn.tenant": "SURROGATE"})),
                ("a name of an attribute", _span(SURROGATE="x")),
                ("a field", {"SURROGATE": []}),
                ("summaries in an attribute", _span(**{"sojourn.summaries": '[{"SURROGATE": 1}]'})),
            )
        ),
        ("surrogates as bytes", "/v1/events", JSON, "", b'{"version": 1, "sender": "\xed\xa0\x80", "sequence": 1}'),
        ("UTF-16", "/v1/events", JSON, "", json.dumps(events()).encode("utf-16")),
        ("no JSON", "/v1/events", JSON, "", b"{"),
        ("a number without end", "/v1/events", JSON, "", b'{"version": ' + b"9" * 10_000 + b"}"),
        ("not a number", "/v1/events", JSON, "", _text(events(sequence=float("nan")))),
        ("a deep list", "/v1/events", JSON, "", _deep(100_000, b"[", b"]")),
        ("a deep object", "/v1/traces", JSON, "", _deep(20_000, b'{"resourceSpans":', b"}")),
        ("deep protobuf", "/v1/traces", PROTOBUF, "", b"\x0a\x7f" * 1_000),
        ("no protobuf", "/v1/traces", PROTOBUF, "", b"\xff" * 100),
        (
            "no UTF-8 in protobuf",
            "/v1/traces",
            PROTOBUF,
            "",
            b"\x0a\x0c\x12\x0a\x12\x08\x4a\x06\x0a\x02\xff\xfe\x12\x00",
        ),
        ("no gzip", "/v1/traces", PROTOBUF, "gzip", b"x" * 100),
        ("half of gzip", "/v1/traces", PROTOBUF, "gzip", gzip.compress(b"x" * 10_000)[:-9]),
        ("two members", "/v1/traces", PROTOBUF, "gzip", gzip.compress(b"") * 2),
        ("a bomb", "/v1/traces", PROTOBUF, "gzip", gzip.compress(bytes(200_000_000), 9)[:400_000]),
        ("a bomb in deflate", "/v1/traces", PROTOBUF, "deflate", zlib.compress(bytes(10_000_000))),
        ("packed twice", "/v1/traces", PROTOBUF, "gzip, gzip", gzip.compress(gzip.compress(b""))),
    ]


#: Frames of HTTP/2 for the gRPC port: (name, bytes).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HTTP2: list[tuple[str, bytes]] = [
    ("half a preface", _PREFACE[:10]),
    ("a preface alone", _PREFACE),
    ("settings that are none", _PREFACE + frame(4, 0, 0, b"\x00" * 5)),
    ("data before headers", _PREFACE + frame(4, 0, 0, b"") + frame(0, 1, 1, b"x" * 100)),
    ("headers that are no HPACK", _PREFACE + frame(4, 0, 0, b"") + frame(1, 4, 1, b"\xff" * 100)),
    ("many resets", _PREFACE + frame(4, 0, 0, b"") + b"".join(frame(3, 0, n, bytes(4)) for n in range(1, 999, 2))),
    ("many pings", _PREFACE + frame(4, 0, 0, b"") + frame(6, 0, 0, bytes(8)) * 1_000),
    ("a frame that is too long", _PREFACE + frame(4, 0, 0, b"") + frame(0, 0, 1, bytes(1 << 20))),
    ("HTTP/1.1", request()),
]

#: What a proper body may hold in place of any of its values: texts that are none, numbers that are none, depths.
VALUES: dict[str, bytes] = {
    **{f"the surrogate {one}": b'"' + one.encode() + b'"' for one in SURROGATES},
    "not a number": b"NaN",
    "no end": b"-Infinity",
    "a number beyond floats": b"1e999",
    "a number of many digits": b"9" * 5_000,
    "beyond 64 bits": b"18446744073709551616",
    "a negative number": b"-1",
    "nothing": b"null",
    "a truth": b"true",
    "a list": b"[]",
    "an object with a surrogate": b'{"\\ud800x": 1}',
    "a deep list": b"[" * 50_000 + b"]" * 50_000,
    "a deep object": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "a long text": b'"' + b"n" * 300_000 + b'"',
    "a NUL": b'"a\\u0000b"',
    "bytes that are no text": b'"\xed\xa0\x80\xff"',
    "a terminal's escape": b'"\\u001b]0;owned\\u0007"',
    "a template": b'"{{ labels.__class__ }}"',
    "an expression": b'"(a+)+$"',
}
#: Lines of headers that mean nothing, or too much, here.
HEADERS: list[tuple[str, tuple[bytes, ...]]] = [
    ("two tokens", (b"Authorization: Bearer a", b"Authorization: Bearer b")),
    ("a token that is no text", (b"Authorization: Bearer \xff\xfe",)),
    ("many headers", tuple(b"X-%d: y" % number for number in range(500))),
    ("a long header", (b"X: " + b"y" * 60_000,)),
    ("two encodings", (b"Content-Encoding: gzip", b"Content-Encoding: br")),
    ("versions that are none", (b'If-None-Match: "\x7f", W/, *', b"If-None-Match: \xff")),
    ("addresses of others", (b"X-Forwarded-For: 127.0.0.1", b"Forwarded: for=127.0.0.1;host=evil.example")),
    ("another method", (b"X-HTTP-Method-Override: DELETE",)),
    ("a strange agent", (b"User-Agent: \x9b31m\xff" + b"a" * 5_000,)),
    ("a range", (b"Range: bytes=0-,-1,5-2",)),
    ("to be gone on with", (b"Expect: 100-continue", b"Expect: x")),
    ("strange wishes", (b"Accept: */*;q=nan, \xff", b"Accept-Encoding: gzip;q=1e999")),
]
#: What stands in a query or a path in place of a number or a name, escaped as it goes over the wire.
ESCAPED = (
    *("nan", "inf", "-1", "1e999", "9" * 400, "%C2%B2", "%D9%A3", "%00", "%ff", "%ed%a0%80", "%", "%zz", "..%2f..%2fx"),
    *("%2e%2e/%2e%2e/etc/passwd", "(a%2B)%2B%24", "%28" * 200, "*", "%7B%7D", "=", "&", ";", "%0d%0aSet-Cookie:a=b"),
)


def mutated(proper: Any) -> Iterator[tuple[str, bytes]]:
    """Bodies that are ``proper`` but for one value, which is one of :data:`VALUES`, or one key, which is no text."""
    for path in _places(proper):
        for name, value in VALUES.items():
            text = json.dumps(_with(proper, path, "PLACE OF A VALUE")).encode()
            yield f"{name} at {path}", text.replace(b'"PLACE OF A VALUE"', value)
    whole = json.dumps(proper).encode()
    for surrogate in SURROGATES:
        yield f"a key {surrogate}", whole.replace(b'": ', surrogate.encode() + b'": ', 1)
    yield "half of it", whole[: len(whole) // 2]
    yield "twice", whole * 2
    yield "in UTF-16", whole.decode().encode("utf-16")
    yield "with a mark before it", b"\xef\xbb\xbf" + whole
    yield "nothing", b""


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from _places(inner, (*path, key))


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    changed = value.copy()
    changed[path[0]] = _with(value[path[0]], path[1:], other)
    return changed
