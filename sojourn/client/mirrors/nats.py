"""A key-value bucket of NATS, as the actuator ``nats_kv`` writes it: needs ``nats-py``."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from sojourn.client.mirrors.base import LOOK_SECONDS, TIMEOUT_SECONDS, Connected
from sojourn.client.poller import Answer, Unreachable
from sojourn.client.wire import MalformedAnswer, Scope, Update, WireLimit, limit_of

_NO_STREAM, _NO_MESSAGE = 10059, 10037
#: Entries that are asked for at once.
_PAGE = 256


@dataclass(frozen=True)
class NatsMirror:
    """The limits in ``bucket``; ``options`` are those of ``nats.connect``, as ``user_credentials`` and ``tls``.

    Two short questions a second; where something has changed, what is new is asked for. Leases are the entries' times
    to live, by the server's clock alone.
    """

    url: str
    bucket: str = "sojourn_limits"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, url: str) -> NatsMirror:
        """Of ``nats://host:4222``, or ``nats://host:4222/bucket``."""
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError(f"{url!r} names no NATS server: nats://host:4222")
        server, bucket = urlunsplit(parts._replace(path="")), parts.path.strip("/")
        return cls(server, bucket) if bucket else cls(server)

    def source(self, clock: Callable[[], float]) -> NatsSource:
        """See :class:`sojourn.client.mirrors.base.Mirror`. ImportError without the library."""
        import nats  # noqa: F401 – whoever lacks it is to hear of it at once

        return NatsSource(self, clock)


class NatsSource(Connected):
    """Asks how far the bucket is, and for the entries that came since."""

    def __init__(self, mirror: NatsMirror, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._mirror = mirror
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Any = None
        #: Which bucket, by when it was made, and up to which entry it is known.
        self._known: tuple[str, int] | None = None

    def _look(self) -> Answer:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(asyncio.wait_for(self._asked(), 4 * TIMEOUT_SECONDS))

    async def _asked(self) -> Answer:
        import nats

        if self._connection is None:

            async def ignore(_: Exception) -> None:
                """What goes wrong is told by who asks."""

            options = {"connect_timeout": TIMEOUT_SECONDS, "allow_reconnect": False, "error_cb": ignore}
            self._connection = await nats.connect(self._mirror.url, **(options | dict(self._mirror.options)))
        asked_at, stream = self._clock(), f"KV_{self._mirror.bucket}"
        info = await self._ask(f"STREAM.INFO.{stream}")
        if "error" in info:
            if info["error"].get("err_code") != _NO_STREAM:
                raise Unreachable(str(info["error"].get("description")))
            none, self._known = self._known != ("", 0), ("", 0)
            return Answer(Update(None, whole=True) if none else None, LOOK_SECONDS, asked_at)
        made, first, last = str(info["created"]), int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
        whole = self._known is None or self._known[0] != made or self._known[1] > last
        start = first if whole or self._known is None else max(first, self._known[1] + 1)
        limits: list[WireLimit] = []
        lifted: list[Scope] = []
        # The server's clock when we asked, or later: by it entries are as old as that, or older.
        now = _instant(info["ts"])
        for at in range(start, last + 1, _PAGE):
            numbers = range(at, min(last + 1, at + _PAGE))
            for told in await asyncio.gather(*(self._ask(f"STREAM.MSG.GET.{stream}", {"seq": n}) for n in numbers)):
                if "error" not in told:
                    self._read(told["message"], now, limits, lifted)
                elif told["error"].get("err_code") != _NO_MESSAGE:
                    raise Unreachable(str(told["error"].get("description")))
        changed = whole or self._known is None or self._known[1] != last
        self._known = (made, last)
        update = Update(None, whole=whole, limits=limits, lifted=lifted) if changed else None
        return Answer(update, LOOK_SECONDS, asked_at)

    async def _ask(self, subject: str, body: Any = None) -> dict[str, Any]:
        payload = b"" if body is None else json.dumps(body).encode()
        reply = await self._connection.request(f"$JS.API.{subject}", payload, timeout=TIMEOUT_SECONDS)
        answer = json.loads(reply.data)
        if not isinstance(answer, dict):
            raise MalformedAnswer("not an answer of JetStream")
        return answer

    def _read(self, message: dict[str, Any], now: float, limits: list[WireLimit], lifted: list[Scope]) -> None:
        """What one entry says; one that makes no sense, or has no end, limits nobody."""
        scope = _scope(str(message["subject"]).removeprefix(f"$KV.{self._mirror.bucket}."))
        if scope is None:
            return
        headers = base64.b64decode(message.get("hdrs") or "").decode("utf-8", "replace").split("\r\n")
        lives = next((line.partition(":")[2].strip() for line in headers if line.startswith("Nats-TTL:")), "")
        try:
            if any(line.startswith(("KV-Operation:", "Nats-Marker-Reason:")) for line in headers):
                raise MalformedAnswer("taken away")
            lease = _seconds(lives) - (now - _instant(message["time"]))
            limits.append(limit_of(json.loads(base64.b64decode(message.get("data") or "")), lease))
        except (ValueError, RecursionError):
            lifted.append(scope)

    def _disconnect(self) -> None:
        loop, connection = self._loop, self._connection
        self._loop = self._connection = self._known = None
        if loop is None:
            return
        try:
            if connection is not None:
                loop.run_until_complete(asyncio.wait_for(connection.close(), 1.0))
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
        except Exception:
            pass
        finally:
            loop.close()


def _scope(key: str) -> Scope | None:
    """Broker, queue and tenant, as the actuator wrote them into the key."""
    parts = ["" if part == "=" else unquote(part.replace("=", "%")) for part in key.split(".")]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def _seconds(text: str) -> float:
    """A time to live, as ``90s``, ``1m30s`` or ``90``; ValueError where it is none."""
    total, number = 0.0, ""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    for char in text:
        if char in units:
            total, number = total + float(number) * units[char], ""
        else:
            number += char
    return total + (float(number) if number or not total else 0.0)


def _instant(text: str) -> float:
    """Of RFC 3339, in unix seconds."""
    return datetime.fromisoformat(text).timestamp()
