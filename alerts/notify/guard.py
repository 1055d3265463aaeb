"""Keeps webhooks from being aimed at the inside of a network (server-side request forgery)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

from lake.errors import SojournError


class Refused(SojournError):
    """The url leads where this receiver may not send."""


async def resolve(url: str, *, allow_private: bool) -> str:
    """The address to connect to for ``url``. The caller must use it as it is: a second look-up could answer otherwise.

    Raises Refused if any address of the host is not public, unless ``allow_private``; OSError if there is none.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in found]
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise Refused(
                    f"{host} leads to {address}, which is not a public address; set allow_private to allow it"
                )
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether ``address`` is one of the open internet: not loopback, private, link-local, multicast or reserved."""
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if embedded is not None:
            return is_public(str(embedded))
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    return ip.is_global and not ip.is_multicast


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
