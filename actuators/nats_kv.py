"""``kind = "nats_kv"``: an entry of a key-value bucket for each limit, with the lease as its time to live.

Messages with a time to live of their own need nats-server 2.11 (ADR-48); a bucket that allows none is refused. Source
of the layout: NATS ADR-8, "JetStream based Key-Value Stores".
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

from actuators.base import ActuatorSettings, Demand, Refused, refuse_other
from brokers.errors import ConnectionLost
from brokers.nats.settings import NatsServer
from lake.errors import SojournError


class NatsKvSettings(ActuatorSettings, NatsServer):
    """Which bucket. Keys are ``<broker>.<queue>.<tenant>``; what is no letter, digit, ``_`` or ``-`` in them is
    ``=`` and the hexadecimal digits of its bytes. Values are JSON."""

    kind: Literal["nats_kv"] = "nats_kv"
    bucket: str = Field(default="sojourn_limits", pattern=r"^[A-Za-z0-9_-]+$", description="made where there is none")


class NatsKv:
    """Puts entries that the server removes when their lease is over."""

    ends_by_itself: ClassVar[bool] = True
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: NatsKvSettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """The key."""
        return ".".join(_token(part) for part in (demand.broker, demand.queue, demand.tenant))

    def value(self, demand: Demand) -> str:
        """The limit as JSON."""
        return demand.document()

    def read(self, place: str) -> str | None:
        """The entry's value."""
        found: str | None = self._talk(lambda client: self._get(client, place))
        return found

    def check(self, before: str | None, value: str) -> None:
        """What stands there already is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Put the entry for so long, in whole seconds; None deletes it."""
        headers = {"KV-Operation": "DEL"} if value is None else {"Nats-TTL": f"{max(1, math.ceil(seconds))}s"}
        self._talk(lambda client: self._put(client, place, value or "", headers))

    async def _get(self, client: Any, key: str) -> str | None:
        from brokers.nats.client import NO_MESSAGE, NO_STREAM, ApiError

        try:
            subject = f"$KV.{self._settings.bucket}.{key}"
            found = await client.api(f"STREAM.MSG.GET.KV_{self._settings.bucket}", {"last_by_subj": subject})
        except ApiError as error:
            if error.code in (NO_MESSAGE, NO_STREAM):
                return None
            raise
        message = found["message"]
        headers = base64.b64decode(message.get("hdrs", "")).decode("latin-1")
        if "\nKV-Operation: " in headers or "\nNats-Marker-Reason: " in headers:
            return None
        return base64.b64decode(message.get("data", "")).decode("utf-8", "replace")

    async def _put(self, client: Any, key: str, value: str, headers: dict[str, str]) -> None:
        await self._ensure(client)
        subject = f"$KV.{self._settings.bucket}.{key}"
        try:
            reply = await client.connection.request(subject, value.encode(), headers=headers, timeout=3)
            answer = json.loads(reply.data)
        except ValueError:
            raise SojournError(f"bucket {self._settings.bucket} answers nonsense") from None
        except SojournError:
            raise
        except Exception as error:  # the library's own kinds
            raise client.silent(subject, error) from None
        if "error" in answer:
            raise Refused(f"bucket {self._settings.bucket} refuses the entry: {answer['error'].get('description')}")

    async def _ensure(self, client: Any) -> None:
        """The bucket, made where there is none. Refused where it knows no time to live of entries."""
        from brokers.nats.client import NO_STREAM, ApiError

        name = f"KV_{self._settings.bucket}"
        try:
            config = (await client.api(f"STREAM.INFO.{name}"))["config"]
        except ApiError as error:
            if error.code != NO_STREAM:
                raise
            wanted = {
                "name": name,
                "subjects": [f"$KV.{self._settings.bucket}.>"],
                "max_msgs_per_subject": 1,
                "storage": "file",
                "discard": "new",
                "allow_rollup_hdrs": True,
                "deny_delete": True,
                "allow_direct": True,
                "allow_msg_ttl": True,
                "subject_delete_marker_ttl": 60_000_000_000,
            }
            config = (await client.api(f"STREAM.CREATE.{name}", wanted))["config"]
        if not config.get("allow_msg_ttl"):
            raise Refused(f"bucket {self._settings.bucket} keeps entries for ever: it needs allow_msg_ttl (NATS 2.11)")

    def _talk(self, talk: Any) -> Any:
        return talking(self._settings, talk)


def talking(settings: Any, talk: Any) -> Any:
    """What ``talk`` returns of an open client; the server's refusals, and what cannot be read, as SojournError."""
    from brokers.nats.blocking import conversing

    try:
        return conversing(settings, "actuator", talk, settings.timeout)
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionLost(f"broker {settings.name!r} answers nonsense: {error}") from None


def _token(part: str) -> str:
    return quote(part, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", "=") or "="
