"""The broker as a whole, whatever its shape: one server, the primary that Sentinels name, or a cluster's primaries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from brokers.errors import ConnectionLost
from brokers.redis.resp import Answer, Command, Refusal
from collectors.redis.client import Address, Client, shown
from collectors.redis.cluster import Cluster
from collectors.redis.sentinel import Sentinels
from collectors.redis.settings import RedisBroker
from lake.errors import SojournError

#: What tells the server's shape and role; every user may ask it.
_HELLO: Command = ("HELLO", 2)
_ROLE: Command = ("ROLE",)
#: Seconds from one look at replicas that have gone to the next.
_LOOK_EVERY = 2.0
#: Seconds after which replicas that have gone are taken to be out of service.
_FORGET_AFTER = 600.0


class Server:
    """Connects to where the queues are, and notices when they are there no more.

    A replica, and a primary whose replica was promoted in its place, are a lost connection: what they hold, or do not
    hold, is not what the application's queues hold.
    """

    def __init__(self, broker: RedisBroker) -> None:
        self._broker = broker
        self._sentinels = Sentinels(broker, broker.sentinel) if broker.sentinel else None
        self._client: Client | None = None
        self._cluster: Cluster | None = None
        self._others: list[Address] = []  # other nodes of the cluster, where the first is away
        self._replicas: list[Address] = []  # of the primary, when it last had any
        self._attached = self._looked = 0.0  # when they were there last, when it was looked for them

    async def open(self) -> None:
        """Connect, and see what is there."""
        await self.close()
        self._client = client = await self._connected()
        (hello,) = await client.synchronise(_HELLO)
        if _told(hello).get("mode") == "cluster":
            cluster = Cluster(self._broker)
            await cluster.open(client)
            self._client, self._cluster = None, cluster
            await cluster.synchronise()
            return
        await self.synchronise()

    async def _connected(self) -> Client:
        if self._sentinels is not None:
            addresses = [await self._sentinels.primary()]
        else:
            addresses = list(dict.fromkeys((*self._broker.addresses(), *self._others)))
        first: ConnectionLost | None = None
        for address in addresses:
            client = Client(self._broker, address)
            try:
                await client.open()
                return client
            except ConnectionLost as lost:
                first = first or lost
        assert first is not None
        raise first

    async def close(self) -> None:
        """Disconnect from all."""
        if self._cluster is not None:
            self._others = self._cluster.known()
            await self._cluster.close()
        if self._client is not None:
            await self._client.close()
        if self._sentinels is not None:
            await self._sentinels.close()
        self._client = self._cluster = None

    def _one(self) -> Client:
        if self._client is None:
            raise ConnectionLost(f"the connection to broker {self._broker.name!r} is lost")
        return self._client

    async def synchronise(self) -> None:
        """Ask for the time, and whether this is still the place to ask."""
        if self._cluster is not None:
            await self._cluster.synchronise()
            return
        client = self._one()
        hello, role = await client.synchronise(_HELLO, _ROLE)
        where = f"broker {self._broker.name!r} at {shown(client.address)}"
        if _told(hello).get("role") == "replica":
            self._see_replica(where, role)
        elif self._sentinels is not None:
            try:
                primary = await self._sentinels.primary()
            except ConnectionLost:
                return  # without Sentinels the role that the server tells has to do
            if primary != client.address:
                raise ConnectionLost(f"{where} is the primary no more: that is {shown(primary)}")
        else:
            await self._see_primary(where, role)

    def _see_replica(self, where: str, role: Answer) -> None:
        known = not isinstance(role, Refusal) and len(role) > 3
        if not self._broker.read_replica:
            of = f" of {role[1].decode()}:{role[2]}" if known else ""
            raise ConnectionLost(
                f"{where} is a replica{of}: name the primary or the Sentinels, or set read_replica = true"
            )
        if known and role[3] != b"connected":
            raise ConnectionLost(f"{where} is a replica without its primary ({role[3].decode()}): it may be behind")

    async def _see_primary(self, where: str, role: Answer) -> None:
        """A primary that has lost all its replicas may have been replaced by one of them."""
        if isinstance(role, Refusal):
            return
        replicas = [(host.decode(), int(port)) for host, port, *_ in role[2]]
        clock = time.monotonic()
        if replicas:
            self._replicas, self._attached = replicas, clock
        if replicas or not self._replicas or clock < self._looked + _LOOK_EVERY:
            return
        if clock > self._attached + _FORGET_AFTER:
            self._replicas = []
        for address in self._replicas:
            other = Client(self._broker, address)
            try:
                await other.open()
                (answer,) = await other.ask([_ROLE])
            except SojournError:
                continue
            finally:
                await other.close()
            if not isinstance(answer, Refusal) and answer[0] == b"master":
                raise ConnectionLost(
                    f"{where} was the primary until {shown(address)} was promoted in its place: what it holds now is "
                    "not what the queues hold; name the new primary, or the Sentinels"
                )
        self._looked = time.monotonic()

    def now(self) -> int:
        """Microseconds since 1970 on the server's clock."""
        return self._cluster.now() if self._cluster is not None else self._one().now()

    async def ask(self, commands: Sequence[Command]) -> list[Answer]:
        """The answers in order, an error of one command among them as a Refusal."""
        return await (self._cluster or self._one()).ask(commands)

    def nodes(self) -> tuple[Address, ...]:
        """The servers that hold the keys, each key at one of them."""
        return self._cluster.nodes() if self._cluster is not None else (self._one().address,)

    async def scan(self, node: Address, command: Command) -> Answer | None:
        """What one of :meth:`nodes` answers; None where one of several cannot be read now."""
        if self._cluster is not None:
            return await self._cluster.scan(node, command)
        return await self._one().demand(command)


def _told(hello: Answer) -> dict[str, Any]:
    """HELLO's answer by name, texts decoded; empty where the server, or what stands before it, does not know HELLO."""
    if isinstance(hello, Refusal) or not isinstance(hello, list):
        return {}
    pairs = zip(hello[::2], hello[1::2], strict=False)
    return {
        name.decode(): value.decode() if isinstance(value, bytes) else value
        for name, value in pairs
        if isinstance(name, bytes)
    }
