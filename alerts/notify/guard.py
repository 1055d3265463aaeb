"""Keeps webhooks from being aimed at the inside of a network (server-side request forgery)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor

from alerts.notify.target import Target
from lake.errors import SojournError


class Refused(SojournError):
    """The url leads where this receiver may not send."""


def refusal(target: Target) -> str | None:
    """Why ``target`` may not be sent to, as far as its url alone says; None where the look-up decides."""
    if target.is_disguised:
        return "its host is a number; write an address as four decimal numbers"
    if target.literal is not None and not is_public(target.host):
        return _not_public(target.host, target.host)
    return None


async def resolve(target: Target, *, allow_private: bool, executor: Executor | None = None) -> str:
    """The address to connect to for ``target``. The caller must use it: a second look-up could answer otherwise.

    Raises Refused if any address of the host is not public, unless ``allow_private``; OSError if there is none.
    ``executor`` runs the look-up: one that hangs holds up who shares it.
    """
    if not allow_private and (why := refusal(target)) is not None:
        raise Refused(why)
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(executor, _look_up, target.host, target.port)
    if not found:
        raise OSError(f"{target.host} has no address")
    if not allow_private:
        for address in found:
            if not is_public(address):
                raise Refused(_not_public(target.host, address))
    return found[0]


def is_public(address: str) -> bool:
    """Whether ``address`` is one of the open internet: global unicast, and nobody's own, special or embedded."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not ip.is_multicast and not any(ip in network for network in _SPECIAL_4)
    if ip.scope_id is not None:
        return False
    if ip.ipv4_mapped is not None:
        return is_public(str(ip.ipv4_mapped))
    if ip in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    embedded = [ip.sixtofour] if ip.sixtofour is not None else list(ip.teredo or ())
    if embedded:
        return all(is_public(str(one)) for one in embedded)
    return ip in _GLOBAL_UNICAST and ip.is_global and not any(ip in network for network in _SPECIAL_6)


def _look_up(host: str, port: int) -> list[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _not_public(host: str, address: str) -> str:
    return f"{host} leads to {address}, which is not a public address; set allow_private to allow it"


#: Where IANA's registry of special addresses and ``is_global`` differ between versions, or clouds listen.
_SPECIAL_4 = [
    ipaddress.IPv4Network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4
        "192.175.48.0/24",  # AS112
        "168.63.129.16/32",  # Azure's host, from inside every virtual machine
    )
]
_SPECIAL_6 = [
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
