"""All primaries of a Redis Cluster as one: each command goes to the node of its key, MOVED and ASK are followed.

Sources: Redis cluster specification, "Key distribution model", "Redirection and resharding".
"""

from __future__ import annotations

import asyncio
import logging
import time
from binascii import crc_hqx
from collections.abc import Sequence

from brokers.errors import ConnectionLost
from brokers.redis.resp import Answer, Command, Refusal
from collectors.redis.client import Address, Client, shown
from collectors.redis.settings import RedisBroker

log = logging.getLogger(__name__)

_SLOTS = 16_384
#: So often a command is sent on before it counts as refused: slots on their way move once, or are asked for once.
_HOPS = 5
#: Seconds from one look at who holds which slots to the next, where nothing calls for one.
_LOOK_EVERY = 10.0
#: Seconds for which a node that did not answer is left alone.
_REST = 3.0
#: Commands whose key does not follow their name.
_KEY_AT = {"XINFO": 2, "MEMORY": 2}


def slot_of(key: bytes | str | int) -> int:
    """The hash slot of ``key``: CRC-16 of what stands in its first braces, or of all of it."""
    data = key if isinstance(key, bytes) else str(key).encode()
    begin = data.find(b"{")
    if begin >= 0:
        end = data.find(b"}", begin + 1)
        if end > begin + 1:
            data = data[begin + 1 : end]
    return crc_hqx(data, 0) % _SLOTS


class Cluster:
    """The primaries of one cluster; a node that is lost is that node's keys' trouble, unless all are."""

    def __init__(self, broker: RedisBroker) -> None:
        self._broker = broker
        self._clients: dict[Address, Client] = {}
        self._holders: list[Address | None] = [None] * _SLOTS
        self._primaries: tuple[Address, ...] = ()
        self._rests: dict[Address, tuple[float, str]] = {}  # nodes that are lost: until when, and why
        self._looked = 0.0
        self._stale = True
        self._clock: Client | None = None

    async def open(self, seed: Client) -> None:
        """Learn from ``seed``, which is open, who holds what."""
        self._clients, self._rests, self._clock = {seed.address: seed}, {}, seed
        self._take(seed, await seed.demand(("CLUSTER", "SLOTS")))

    async def close(self) -> None:
        """Disconnect from every node."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def nodes(self) -> tuple[Address, ...]:
        """The primaries, which hold each key once."""
        return self._primaries

    def known(self) -> list[Address]:
        """Every node that was met, to be asked where another is away."""
        return list(self._clients)

    def now(self) -> int:
        """Microseconds since 1970 on the clock of one node."""
        assert self._clock is not None
        return self._clock.now()

    async def synchronise(self) -> None:
        """Look who holds what, if it is time or something has changed; then ask one node for the time."""
        why: Exception = ConnectionLost(f"no node of broker {self._broker.name!r} answers")
        if self._stale or time.monotonic() > self._looked + _LOOK_EVERY:
            for address in dict.fromkeys((*self._primaries, *self._clients)):
                try:
                    client = await self._client(address)
                    self._take(client, await client.demand(("CLUSTER", "SLOTS")))
                    break
                except ConnectionLost as lost:
                    why = self._lose(address, lost)
            else:
                raise why
        for address in self._primaries:
            try:
                self._clock = await self._client(address)
                await self._clock.synchronise()
                return
            except ConnectionLost as lost:
                why = self._lose(address, lost)
        raise why

    def _take(self, teller: Client, ranges: Answer) -> None:
        """Who holds which slots, as one node tells: [first, last, [host, port, …], its replicas…] each."""
        holders: list[Address | None] = [None] * _SLOTS
        for first, last, primary, *_ in ranges:
            host = primary[0].decode() if primary[0] else ""
            address = (host if host not in ("", "?") else teller.address[0], int(primary[1]))
            holders[first : last + 1] = [address] * (last + 1 - first)
        self._holders, self._stale, self._looked = holders, False, time.monotonic()
        self._primaries = tuple(sorted({address for address in holders if address is not None}))
        if not self._primaries:
            raise ConnectionLost(f"broker {self._broker.name!r}: no node of the cluster holds any slot")

    async def _client(self, address: Address) -> Client:
        """The open connection to a node; ConnectionLost at once while it rests."""
        rest = self._rests.get(address)
        if rest is not None and time.monotonic() < rest[0]:
            raise ConnectionLost(rest[1])
        client = self._clients.get(address)
        if client is None or not client.is_open:
            client = Client(self._broker, address)
            await client.open()
            self._clients[address] = client
        if self._rests.pop(address, None) is not None:
            log.info("broker %s: node %s is back", self._broker.name, shown(address))
        return client

    def _lose(self, address: Address, lost: ConnectionLost) -> ConnectionLost:
        if address not in self._rests:
            log.warning(
                "broker %s: queues with keys at node %s are unknown: %s", self._broker.name, shown(address), lost
            )
        rest = self._rests.get(address)
        if rest is None or time.monotonic() >= rest[0]:
            self._rests[address] = time.monotonic() + _REST, str(lost)
        self._stale = True  # perhaps another node holds its slots by now
        return lost

    async def scan(self, node: Address, command: Command) -> Answer | None:
        """The answer of one node, for what concerns no single key; None where it cannot be read now."""
        try:
            return await (await self._client(node)).demand(command)
        except ConnectionLost as lost:
            self._lose(node, lost)
            return None

    async def ask(self, commands: Sequence[Command]) -> list[Answer]:
        """The answers in order; Refusals for keys of nodes that do not answer. ConnectionLost if none does."""
        answers: list[Answer] = [None] * len(commands)
        places: dict[int, tuple[Address, bool]] = {}
        for index, command in enumerate(commands):
            slot = slot_of(command[_KEY_AT.get(str(command[0]), 1)])
            holder = self._holders[slot]
            if holder is None:
                answers[index] = Refusal(f"CLUSTERDOWN no node holds slot {slot}")
                self._stale = True
            else:
                places[index] = holder, False
        for _ in range(_HOPS):
            if not places:
                break
            asked: dict[Address, list[tuple[int, bool]]] = {}
            for index, (address, asking) in places.items():
                asked.setdefault(address, []).append((index, asking))
            told = await asyncio.gather(*(self._ask(address, of, commands) for address, of in asked.items()))
            places = {}
            for address, found in zip(asked, told, strict=True):
                for index, answer in found:
                    answers[index] = answer
                    if isinstance(answer, Refusal) and answer.code in ("MOVED", "ASK"):
                        places[index] = _target(answer, address), answer.code == "ASK"
                        self._stale |= answer.code == "MOVED"
        if self._primaries and all(address in self._rests for address in self._primaries):
            raise ConnectionLost(
                f"no node of broker {self._broker.name!r} answers: {self._rests[self._primaries[0]][1]}"
            )
        return answers

    async def _ask(
        self, address: Address, of: list[tuple[int, bool]], commands: Sequence[Command]
    ) -> list[tuple[int, Answer]]:
        """The answers of one node, each with its command's index."""
        sent: list[Command] = []
        for index, asking in of:
            sent += [("ASKING",), commands[index]] if asking else [commands[index]]
        try:
            replies = iter(await (await self._client(address)).ask(sent))
        except ConnectionLost as lost:
            self._lose(address, lost)
            return [(index, Refusal(f"NODEDOWN {lost}")) for index, _ in of]
        found = []
        for index, asking in of:
            if asking:
                next(replies)
            found.append((index, next(replies)))
        return found


def _target(redirection: Refusal, teller: Address) -> Address:
    """Where ``MOVED slot host:port`` and ``ASK slot host:port`` lead; no host is the host that tells it."""
    host, _, port = str(redirection).split(" ")[2].rpartition(":")
    return host or teller[0], int(port)
