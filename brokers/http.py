"""One HTTP request that blocks: within a time, an answer within a size, no redirect followed, no proxy asked."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from brokers.errors import ConnectionLost
from lake.errors import first_line

#: An answer beyond this many bytes is not read on.
MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Response:
    """What a server answered."""

    status: int
    body: bytes


def ask(
    method: str,
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    auth: Any = None,
    context: ssl.SSLContext | None = None,
    timeout: float,
) -> Response:
    """The answer to one request. ConnectionLost where none comes in time, or far too much does."""
    where, deadline = url.partition("?")[0], time.monotonic() + timeout
    try:
        with (
            httpx.Client(auth=auth, timeout=timeout, verify=context or True, trust_env=False) as client,
            client.stream(method, url, content=body, headers=dict(headers or {})) as answer,
        ):
            found = bytearray()
            for piece in answer.iter_bytes():
                found += piece
                if len(found) > MOST_BYTES:
                    raise ConnectionLost(f"{where} answers more than {MOST_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    raise ConnectionLost(f"an answer of {where} takes longer than {timeout:g} s")
            return Response(answer.status_code, bytes(found))
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        why = first_line(error) or type(error).__name__
        raise ConnectionLost(f"{where} cannot be reached: {why}") from None
