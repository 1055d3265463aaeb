"""A proxy's word on who somebody is: taken from its own addresses, erased from everybody else's requests."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

Network = IPv4Network | IPv6Network


class TrustedHeader:
    """``app``, which sees ``header`` only where one of ``addresses`` has sent it, once."""

    def __init__(self, app: ASGIApp, header: str, addresses: Sequence[Network]) -> None:
        self._app = app
        self._header = header.lower().encode("ascii")
        self._addresses = tuple(addresses)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] in ("http", "websocket"):
            told = [value for name, value in scope["headers"] if name.lower() == self._header]
            if told and (len(told) > 1 or not self.believes(scope.get("client"))):
                kept = [(name, value) for name, value in scope["headers"] if name.lower() != self._header]
                scope = {**scope, "headers": kept}
        await self._app(scope, receive, send)

    def believes(self, peer: Sequence[object] | None) -> bool:
        """Whether ``peer`` (address, port) is the proxy."""
        if not peer:
            return False
        try:
            address = ip_address(str(peer[0]))
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in one for one in self._addresses)
