"""Requests between the harmless and the hostile, made from a seed: bytes for a connection, or a call of gRPC."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from tests.collectors.receive.support import request_of
from tests.security.names import ENDLESS, HALVES, NAMES
from tests.security.requests import ALERT, SILENCE, UPGRADE, mutated

TOKEN = "fuzz-token-5f0d7a"
Endpoint = Literal["receiver", "api", "dashboard", "grpc"]

_TYPES = ("enqueued", "received", "completed", "failed", "dead_lettered")
_NAMES = (*NAMES.values(), *HALVES, ENDLESS, "orders", "acme", "")
_PATHS = (
    *("/v1/limits", "/v1/limits?wait=nan", "/v1/limits?wait=-1", "/v1/limits?wait=0.01", "/v1/actions?limit=1e999"),
    *("/v1/capacity", "/v1/capacity?queue=%ff&broker=", "/v1/capacity/metrics"),
    *("/v1/actions?limit=-5", "/v1/actions?limit=\xff", "/v1/actions/%00/revoke", "/v1/actions/..%2f..%2fx/revoke"),
    *("/v1/actions/%ed%a0%80/revoke", "/api/v2/alerts", "/api/v2/alerts?active=%ff", "/api/v2/silences", "/-/healthy"),
    *("/", "//", "/../../etc/passwd", "/v1/pause/", "/%2e%2e/", "*", "http://evil.example/v1/limits", "/" + "a" * 9000),
)
_STRANGE_HEADERS = (
    *("Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5, 5", "Content-Length: ٣"),
    *(
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Content-Encoding: br",
        "Expect: 100-continue",
    ),
    *(
        "Content-Encoding: gzip",
        "Content-Type: text/plain",
        "Content-Type: \xff",
        "X: \x00",
        " folded: x",
        "Bad Header: x",
    ),
    *(
        "Host: evil.example",
        "Host: a b",
        "Host: [::1",
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://[",
    ),
    *(
        "Authorization: Bearer \xff",
        "Authorization: Basic x",
        "Connection: upgrade\r\nUpgrade: websocket",
        "X: " + "y" * 70_000,
    ),
    *("Retry-After: ²", "If-None-Match: \x7f", "X-Forwarded-For: 127.0.0.1", "Sec-Fetch-Site: cross-site"),
)
#: Those with which a web page of others, or a name that leads here by rebinding, gives itself away.
_FOREIGN = frozenset(
    ("Host: evil.example", "Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site")
)


#: What the API takes, and a proper body of it.
_WRITES: tuple[tuple[str, Any], ...] = (
    ("/api/v2/alerts", [ALERT]),
    ("/api/v2/silences", SILENCE),
    ("/api/v2/acknowledgements", {"fingerprint": "0" * 16, "createdBy": "a", "comment": "c"}),
)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request. ``whole``: it is not cut off. ``reuse``: the connection serves others, too.

    ``forbidden``: it lacks the token, or comes from a web page of others, so that it must not be answered by 2xx.
    """

    endpoint: Endpoint
    data: bytes
    whole: bool = True
    reuse: bool = True
    forbidden: bool = False
    method: str = "POST"


def request(seed: int, number: int) -> Sent:
    """Request ``number`` of the run ``seed``."""
    chance = random.Random(f"{seed}/{number}")
    dice = chance.random()
    if dice < 0.12:
        return Sent("grpc", _spans(chance), forbidden=chance.random() < 0.2)
    if dice < 0.35:
        return _api(chance)
    if dice < 0.42:
        return _dashboard(chance)
    return _receiver(chance, number)


def legitimate(number: int) -> bytes:
    """A request that must be kept, exactly once, whatever others send: one event with the id ``probe-NUMBER``."""
    event = _event(f"probe-{number}", "probes", "probe", f"m{number}")
    return _http(
        "POST", "/v1/events", json.dumps(_report([event], number)).encode(), ["Content-Type: application/json"]
    )


def _receiver(chance: random.Random, number: int) -> Sent:
    path, kind, body = chance.choice(
        (
            lambda: ("/v1/events", "application/json", _events(chance, number)),
            lambda: ("/v1/events", "application/json", _events(chance, number)),
            lambda: ("/v1/traces", "application/x-protobuf", _spans(chance)),
            lambda: ("/v1/traces", "application/json", _broken_json(chance, _TREE)),
        )
    )()
    headers = [f"Content-Type: {kind}"]
    if chance.random() < 0.05:
        path = chance.choice(_PATHS)
    if chance.random() < 0.1:
        body = gzip.compress(body if chance.random() < 0.7 else b"\0" * 3_000_000, 1, mtime=0)
        headers.append("Content-Encoding: gzip")
    return _framed(chance, "receiver", "POST", path, body, headers)


def _dashboard(chance: random.Random) -> Sent:
    path = chance.choice((*_PATHS, "/", "/_stcore/stream", "/_stcore/host-config", "/_stcore/health"))
    headers = [line.decode() for line in UPGRADE] if chance.random() < 0.4 else []
    headers += [chance.choice(sorted(_FOREIGN))] if chance.random() < 0.2 else []
    method = chance.choice(("GET", "GET", "GET", "POST", "PUT", "HEAD"))
    sent = _framed(chance, "dashboard", method, path, b"{}" if method in ("POST", "PUT") else b"", headers)
    # It asks for no token: only pages and names of others are forbidden, and those only.
    foreign = any(line.encode() + b"\r\n" in sent.data for line in _FOREIGN)
    return replace(sent, reuse=sent.reuse and not headers, forbidden=foreign)


def _api(chance: random.Random) -> Sent:
    if chance.random() < 0.4:
        path, proper = chance.choice(_WRITES)
        body = chance.choice(_mutated(path)) if chance.random() < 0.7 else _broken_json(chance, proper)
        return _framed(chance, "api", "POST", path, body, ["Content-Type: application/json"])
    path = chance.choice(_PATHS)
    revoke = path.endswith("/revoke")
    method = chance.choice(("POST", "GET")) if revoke else chance.choice(("GET", "GET", "HEAD", "DELETE", "BREW"))
    return _framed(chance, "api", method, path, b"", [])


def _framed(chance: random.Random, endpoint: Endpoint, method: str, path: str, body: bytes, headers: list[str]) -> Sent:
    token, strange, cut = chance.random() < 0.85, chance.random() < 0.15, chance.random() < 0.12
    forbidden = not token and path != "/-/healthy"
    if strange:
        headers = [*headers, chance.choice(_STRANGE_HEADERS)]
        forbidden = forbidden or headers[-1] in _FOREIGN
    data = _http(method, path, body, headers, token=token)
    if cut:
        return Sent(endpoint, data[: chance.randint(0, len(data) - 1)], whole=False, forbidden=forbidden)
    if chance.random() < 0.03:
        at = chance.randint(0, min(len(data), 200))
        return Sent(endpoint, data[:at] + chance.randbytes(5) + data[at:], whole=False)
    # What a strange header makes of the rest of the connection is the server's to say: nothing more is sent on it.
    return Sent(endpoint, data, reuse=not strange, forbidden=forbidden, method=method)


def _http(method: str, path: str, body: bytes, headers: list[str], *, token: bool = True) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *([] if any(h.startswith("Host:") for h in headers) else ["Host: 127.0.0.1"])]
    lines += headers
    if token:
        lines.append(f"Authorization: Bearer {TOKEN}")
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("utf-8", "surrogatepass") + body


def _event(event_id: str, queue: str, tenant: str, message: str) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "event_type": "enqueued",
        "broker": "fuzz",
        "queue": queue,
        "tenant": tenant,
        "message_id": message,
        "occurred_at": 1_780_000_000_000_000,
    }


def _report(events: list[dict[str, Any]], number: int) -> dict[str, Any]:
    return {"version": 1, "sender": f"fuzz-{number}", "sequence": 0, "events": events}


def _events(chance: random.Random, number: int) -> bytes:
    events = []
    for index in range(chance.choice((1, 1, 2, 5))):
        event = _event(f"e{number}-{index}", "orders", "acme", f"m{number}")
        for _ in range(chance.choice((0, 1, 1, 3))):
            event[
                chance.choice((*event, "subscriber", "worker", "reason", "trace_id", "attempt", "priority", "\ud800x"))
            ] = chance.choice((*_NAMES, *_VALUES))
        event["event_type"] = chance.choice((*_TYPES, "x", event["event_type"]))
        events.append(event)
    report = _report(events, number)
    if chance.random() < 0.15:
        report[chance.choice(("version", "sender", "sequence", "events", "polls", "summaries", "x"))] = chance.choice(
            _VALUES
        )
    return _broken_json(chance, report)


_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        2**63,
        10**400,
        1e308,
        float("nan"),
        float("inf"),
        [],
        {},
        "",
        [[]],
        {"a": None},
        "1e999",
        0,
        1.5,
    ),
    *("\ud800", [{}], ["x"], [None], {"\udfff": 1}, 2**31, -(2**31)),
)
_TREE: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "\ud800shop"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "00" * 15 + "01",
                            "spanId": "00" * 7 + "01",
                            "kind": 4,
                            "startTimeUnixNano": "1780000000000000000",
                            "endTimeUnixNano": "1780000000001000000",
                            "attributes": [
                                {"key": "messaging.system", "value": {"stringValue": "nats"}},
                                {"key": "messaging.destination.name", "value": {"stringValue": "ord\udfffers"}},
                                {"key": "messaging.operation.type", "value": {"stringValue": "send"}},
                            ],
                        }
                    ]
                }
            ],
        }
    ]
}


def _broken_json(chance: random.Random, tree: Any) -> bytes:
    text = json.dumps(tree, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    dice = chance.random()
    if dice < 0.6:
        return text
    place = chance.randint(0, len(text))
    pieces = (
        b"\\ud800",
        b"\\u0000",
        b"\xed\xa0\x80",
        b"\x00",
        b"\xff",
        b"[" * 3000,
        b'{"a":' * 3000,
        b"\\x",
        b'"',
        b"1e9999",
        b"}",
    )
    return text[:place] if dice < 0.7 else text[:place] + chance.choice(pieces) + text[place:]


@cache
def _mutated(path: str) -> list[bytes]:
    return [body for _, body in mutated(dict(_WRITES)[path])]


@cache
def _whole_spans() -> tuple[bytes, ...]:
    made = []
    for name in (*NAMES.values(), "orders"):
        short = name[:2000]
        attributes = {"messaging__destination__name": short, "sojourn__tenant": short, "messaging__message__id": short}
        made.append(
            request_of(
                ("send", 1, attributes),
                ("process", 2, {"links": [(1, 1)], "error": short}),
                ("receive", 3, {"messaging__batch__message_count": 2}),
            ).SerializeToString()
        )
    return tuple(made)


def _spans(chance: random.Random) -> bytes:
    body = bytearray(chance.choice(_whole_spans()))
    for _ in range(chance.choice((0, 0, 1, 4))):
        body[chance.randrange(len(body))] = chance.randrange(256)
    if chance.random() < 0.1:
        at = body.find(b"messaging")
        body[at : at + 3] = b"\xed\xa0\x80"
    return bytes(body[: chance.randint(0, len(body))]) if chance.random() < 0.15 else bytes(body)
