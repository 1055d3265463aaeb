"""Host names and addresses as the headers of a request give them: parsed, or None; never an exception."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\s\\]+)")
_PORTS = {"http": 80, "https": 443}
#: A name that is no longer than DNS allows.
_LONGEST = 253


def authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of ``name[:port]``, in lower case and without a final dot; None where it is malformed."""
    match = _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    host, port = match[1], None if match[2] is None else int(match[2])
    if port is not None and port > 65_535:
        return None
    if host.startswith("["):
        address = _address(host[1:-1])
        return None if not isinstance(address, IPv6Address) else (str(address), port)
    if len(host) > _LONGEST or _NAME.fullmatch(host) is None:
        return None
    return host.removesuffix("."), port


def origin(text: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an ``Origin`` header (RFC 6454); None where it is malformed, or no web address."""
    match = _ORIGIN.fullmatch(text.lower())
    parts = None if match is None else authority(match[2])
    if match is None or parts is None:
        return None
    return match[1], parts[0], parts[1] or _PORTS[match[1]]


def same_origin(sent: tuple[str, str, int], scheme: str, host: tuple[str, int | None]) -> bool:
    """Whether ``sent`` is where a request with that scheme and ``Host`` went to."""
    return sent == (scheme, host[0], host[1] or _PORTS.get(scheme, 0))


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine alone."""
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_address(host: str) -> bool:
    """Whether ``host`` is an IP address and no name."""
    return _address(host) is not None


def peer_of(host: str) -> str:
    """What counts as one peer: an IPv4 address; of IPv6 the /64, which one machine has to itself."""
    address = _address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped is not None else str(IPv6Address(int(address) >> 64 << 64))
    return host


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
