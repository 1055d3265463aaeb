"""``kind = "nats"``: what a stream's consumers have not been given yet, from their own state at the server.

Source: NATS JetStream's API, ``$JS.API.CONSUMER.LIST`` and ``INFO``; ``num_pending`` are the messages of the stream
that match a consumer and were never delivered to it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import Field

from alerts.control.depth.base import DepthSettings, Unknown
from brokers.errors import ConnectionLost
from brokers.nats.settings import NatsServer


class NatsDepthSettings(DepthSettings, NatsServer):
    """Where it is, and which consumer counts."""

    kind: Literal["nats"] = "nats"
    consumer: str | None = Field(
        default=None,
        pattern=r"^[^\s.*>/\\]+$",
        description="the durable consumer that is asked for, where a stream has others as well; default: all of them, "
        "together in a work queue, else the furthest behind",
    )


class NatsDepth:
    """Asks through a connection of its own, in the thread that calls it."""

    def __init__(self, settings: NatsDepthSettings) -> None:
        self._settings = settings
        self._runner: asyncio.Runner | None = None
        self._client: Any = None
        self._shared: dict[str, bool] = {}  # streams of which each message goes to one consumer

    def open(self) -> None:
        """Connect."""
        from brokers.nats.client import Client

        self.close()
        self._runner, self._client = asyncio.Runner(), Client(self._settings, "glances")
        self._run(self._client.open(self._settings.timeout))

    def waiting(self, queue: str) -> float:
        """What the stream's consumers have not been given."""
        if self._client is None:
            raise ConnectionLost(f"broker {self._settings.name!r} is not connected")
        return float(self._run(self._asked(queue)))

    def close(self) -> None:
        """Disconnect."""
        runner, client, self._runner, self._client = self._runner, self._client, None, None
        self._shared.clear()
        if runner is not None:
            if client is not None:
                runner.run(client.close())
            runner.close()

    def _run(self, work: Any) -> Any:
        assert self._runner is not None, "open comes first"
        return self._runner.run(work)

    async def _asked(self, stream: str) -> int:
        if not stream or set(stream) & set(" .*>/\\\t\r\n"):
            raise Unknown(f"{stream!r} cannot be the name of a stream")
        if self._settings.consumer is not None:
            info = await self._api(f"CONSUMER.INFO.{stream}.{self._settings.consumer}")
            return _pending(info)
        if stream not in self._shared:
            told = await self._api(f"STREAM.INFO.{stream}")
            self._shared[stream] = told["config"].get("retention") == "workqueue"
        told = await self._api(f"CONSUMER.LIST.{stream}")
        infos = told.get("consumers") or ()
        if not infos:
            raise Unknown(f"stream {stream!r} has no consumer")
        if told.get("missing") or told.get("total", 0) > len(infos):
            raise Unknown(f"not all consumers of stream {stream!r} are told: name one of them")
        pending = [_pending(info) for info in infos]
        return sum(pending) if self._shared[stream] else max(pending)

    async def _api(self, subject: str) -> dict[str, Any]:
        from brokers.nats.client import NO_CONSUMER, NO_STREAM, ApiError

        try:
            found: dict[str, Any] = await self._client.api(subject, timeout=self._settings.timeout)
        except ApiError as error:
            if error.code in (NO_CONSUMER, NO_STREAM):
                raise Unknown(str(error)) from None
            raise
        return found


def _pending(info: dict[str, Any]) -> int:
    pending = info.get("num_pending")
    if not isinstance(pending, int) or isinstance(pending, bool) or pending < 0:
        raise Unknown(f"the server tells of {pending!r} messages that wait")
    return pending
