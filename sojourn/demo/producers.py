"""A producer process of the demo: some tenants that send at their rates and obey Sojourn's limits.

``python -m sojourn.demo.producers URL LIMITS_URL LAKE NUMBER TRAFFIC_SECONDS TENANT…``
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import uuid
from pathlib import Path

from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from sojourn.client import Limits
from sojourn.demo import scenario
from sojourn.demo.layout import Layout
from sojourn.demo.work import connect, stop_event, tell, wait

#: Publishes whose acknowledgement is awaited at once; more would hide that the broker is slow.
MOST_UNACKNOWLEDGED = 200
PUBLISH_ATTEMPTS = 20


class Producer:
    """Some tenants of one process; counts what the broker acknowledged, and what a limit held back."""

    def __init__(self, broker: JetStreamContext, limits: Limits, plan: scenario.Scenario, layout: Layout) -> None:
        self._broker = broker
        self._limits = limits
        self._plan = plan
        self._layout = layout
        self._room = asyncio.Semaphore(MOST_UNACKNOWLEDGED)
        self._sending: set[asyncio.Task[None]] = set()
        self.counts = {"published": 0, "shed": 0, "failed": 0}

    async def tenant(self, name: str, stop: asyncio.Event) -> None:
        """Send at the tenant's rate until the traffic ends. A message that a limit holds back is not sent."""
        chance = random.Random(f"{name}-{time.time()}")
        due = time.time()
        while not stop.is_set():
            start = self._layout.clock_start()
            elapsed = time.time() - start if start is not None else -1.0
            if elapsed >= self._plan.traffic_seconds:
                return
            rate = self._plan.rate(name, max(0.0, elapsed))
            if rate <= 0:
                due = time.time() + 0.1
            else:
                if self._limits.try_acquire(scenario.STREAM, name):
                    await self._room.acquire()
                    task = asyncio.create_task(self._send(name, chance))
                    self._sending.add(task)
                    task.add_done_callback(self._sending.discard)
                else:
                    self.counts["shed"] += 1
                due = max(due, time.time() - 1.0) + chance.uniform(0.5, 1.5) / rate
            if due > time.time() and await wait(stop, due - time.time()):
                return

    async def _send(self, tenant: str, chance: random.Random) -> None:
        """Publish one message and wait for its acknowledgement; a repetition carries the same id and counts once."""
        identity = uuid.uuid4().hex
        body = json.dumps({"order": identity, "amount": round(chance.lognormvariate(3, 1), 2)}).encode()
        headers = {scenario.TENANT_HEADER: tenant, "Nats-Msg-Id": identity}
        try:
            for _ in range(PUBLISH_ATTEMPTS):
                try:
                    await self._broker.publish(f"orders.{tenant}", body, timeout=2, headers=headers)
                except (NatsError, TimeoutError):
                    await asyncio.sleep(0.1)
                else:
                    self.counts["published"] += 1
                    return
            self.counts["failed"] += 1
        finally:
            self._room.release()

    async def settle(self) -> None:
        """Wait for the acknowledgements that are still due."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=3)


async def produce(url: str, limits_url: str, layout: Layout, number: int, traffic: float, tenants: list[str]) -> None:
    """Send for ``tenants`` until the scenario's traffic ends or we are told to stop."""
    stop = stop_event()
    client = await connect(url, f"producer-{number}")
    with Limits(limits_url, broker=scenario.BROKER) as limits:
        producer = Producer(client.jetstream(), limits, scenario.Scenario(traffic), layout)
        sending = [asyncio.create_task(producer.tenant(name, stop)) for name in tenants]
        while not all(task.done() for task in sending):
            tell(layout.producer(number), producer.counts)
            await asyncio.wait(sending, timeout=0.5)
        await producer.settle()
        tell(layout.producer(number), producer.counts)
    await client.flush()
    await client.close()


if __name__ == "__main__":
    _url, _limits_url, _lake, _number, _traffic, *_tenants = sys.argv[1:]
    asyncio.run(produce(_url, _limits_url, Layout(Path(_lake)), int(_number), float(_traffic), _tenants))
