"""Talking to a NATS server from code that blocks: a connection for each conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from brokers.errors import ConnectionLost
from brokers.nats.client import Client
from brokers.nats.settings import NatsServer

Result = TypeVar("Result")


def conversing(server: NatsServer, purpose: str, talk: Callable[[Client], Awaitable[Result]], timeout: float) -> Result:
    """What ``talk`` returns of its conversation through an open client. ConnectionLost where it takes too long."""

    async def work() -> Result:
        client = Client(server, purpose)
        try:
            async with asyncio.timeout(timeout):
                await client.open(timeout)
                return await talk(client)
        except TimeoutError:
            raise ConnectionLost(
                f"broker {server.name!r} at {server.url} does not answer within {timeout:g} s"
            ) from None
        finally:
            await client.close()

    return asyncio.run(work())
