"""One receiver's connections, kept between attempts, and given up with whatever an attempt left of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import httpx


@dataclass(slots=True)
class _Pool:
    client: httpx.AsyncClient
    users: int = 0
    is_spent: bool = False


class Connections:
    """Lends a client to one attempt after the other. Belongs to one event loop.

    A request that is cancelled at an unlucky moment keeps its place in the client's pool for ever: after a few of them
    none would be free, and the receiver would hear nothing more. So a client whose request ended badly is lent to
    nobody else, and closed once its last user is done.
    """

    def __init__(self, tls: ssl.SSLContext, most: int) -> None:
        self._tls, self._most = tls, most
        self._pool: _Pool | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one request."""
        pool = self._pool = self._pool or _Pool(self._new())
        pool.users += 1
        try:
            yield pool.client
        except BaseException:
            pool.is_spent = True
            raise
        finally:
            pool.users -= 1
            self._pool = None if pool.is_spent and self._pool is pool else self._pool
            if pool.is_spent and pool.users == 0:
                self._close(pool)

    async def close(self) -> None:
        """Close all of them."""
        if self._pool is not None:
            self._close(self._pool)
            self._pool = None
        if self._closing:
            await asyncio.wait(self._closing, timeout=1.0)

    def _new(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=self._most)
        # Proxies of the environment would connect on our behalf, behind the guard's back.
        return httpx.AsyncClient(follow_redirects=False, trust_env=False, verify=self._tls, limits=limits)

    def _close(self, pool: _Pool) -> None:
        async def close() -> None:
            with suppress(Exception):  # whatever is left of it is of no use
                await pool.client.aclose()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
