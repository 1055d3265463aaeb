"""Asking Sentinels which server is the primary now."""

from __future__ import annotations

from brokers.errors import ConnectionLost
from collectors.redis.client import Address, Client, Login, shown
from collectors.redis.settings import RedisBroker, SentinelSettings
from lake.errors import UserError


class Sentinels:
    """The Sentinels of one service; the first that answers is asked again, as long as it does."""

    def __init__(self, broker: RedisBroker, settings: SentinelSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._client: Client | None = None

    async def primary(self) -> Address:
        """The address of the primary. ConnectionLost if no Sentinel answers, UserError if none knows the service."""
        service, troubles = self._settings.service, []
        for address in self._settings.hosts():
            if self._client is None:
                self._client = Client(self._broker, address, Login(self._settings.user, self._settings.password))
                try:
                    await self._client.open()
                except ConnectionLost as lost:
                    self._client = None
                    troubles.append(str(lost))
                    continue
            try:
                found = await self._client.demand(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service))
            except ConnectionLost as lost:
                await self.close()
                troubles.append(str(lost))
                continue
            if found:
                return found[0].decode(), int(found[1])
            troubles.append(f"{shown(self._client.address)} does not know {service!r}")
            await self.close()
        if all("does not know" in trouble for trouble in troubles):
            raise UserError(
                f"broker {self._broker.name!r}: no Sentinel knows the service {service!r}", "fix sentinel.service"
            )
        raise ConnectionLost(f"broker {self._broker.name!r}: no Sentinel tells the primary: {'; '.join(troubles)}")

    async def close(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
