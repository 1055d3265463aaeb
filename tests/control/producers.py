"""Producers on a real NATS server that ask ``sojourn.Limits`` before each message."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import sojourn
from tests.collectors.support import api, connect
from tests.support.nats import NatsServer

PRODUCERS, ASKS = 20, 120.0


class Producers:
    """Twenty of t0 and one of t1, each publishing to a stream as fast as it may; ``stored`` is what the broker took."""

    def __init__(self, server: NatsServer, limits: sojourn.Limits, *, ignoring: int = 0) -> None:
        self.stored: Counter[str] = Counter()
        self._server, self._limits, self._ignoring = server, limits, ignoring
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Producers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def number(self, tenant: str) -> int:
        """What of ``tenant`` is in the stream."""
        return sum(count for name, count in self.stored.items() if name.startswith(tenant))

    async def _run(self) -> None:
        connection = await connect(self._server.url)
        config = {"name": "orders", "subjects": ["orders.*"], "retention": "limits", "storage": "memory"}
        await api(connection, "STREAM.CREATE.orders", config)
        stream = connection.jetstream()

        async def produce(tenant: str, name: str, rate: float, obeys: bool) -> None:
            while not self._over.is_set():
                await asyncio.sleep(1 / rate)
                if obeys:
                    await self._limits.wait("orders", tenant)
                await stream.publish(f"orders.{tenant}", name.encode())  # the broker has it when this returns
                self.stored[name] += 1

        each = ASKS / PRODUCERS
        work = [produce("t0", f"t0-{number}", each, obeys=number >= self._ignoring) for number in range(PRODUCERS)]
        tasks = [asyncio.create_task(one) for one in (*work, produce("t1", "t1", 10.0, obeys=True))]
        await asyncio.to_thread(self._over.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connection.close()
