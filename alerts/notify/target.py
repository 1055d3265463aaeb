"""A receiver's url taken apart once, where the settings are read: what it cannot mean is refused there."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

import httpx

#: Characters in a url; servers take no more than about as many.
LONGEST = 4096
_SCHEMES = {"http": 80, "https": 443, "smtp": 587, "smtps": 465}
#: Those of mail servers.
MAIL_SCHEMES = ("smtp", "smtps")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. ``host`` is ASCII, without brackets; ``path`` begins with a slash and holds the query.

    ``user`` and ``password`` are percent-decoded, as RFC 3986 has them in a url.
    """

    scheme: str
    host: str
    port: int
    path: str
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, url: str) -> Target:
        """The target of ``url``. ValueError, which does not repeat the url, for one that nobody can connect to."""
        if len(url) > LONGEST:
            raise ValueError(f"the url is longer than {LONGEST} characters")
        if any(char <= " " or char == "\\" or "\x7f" <= char <= "\xa0" for char in url):
            raise ValueError("the url holds a space, a backslash or a control character")
        try:
            parts = httpx.URL(url)
            host = parts.raw_host.decode("ascii")
            user, password = parts.username, parts.password
        except (httpx.InvalidURL, UnicodeError, ValueError):
            raise ValueError("the url cannot be parsed: write https://host:port/path") from None
        if parts.scheme not in _SCHEMES or not host:
            raise ValueError("the url of a receiver begins with http:// or https:// (mail: smtp://) and names a host")
        port = _SCHEMES[parts.scheme] if parts.port is None else parts.port
        if not 1 <= port <= 65535:
            raise ValueError(f"the url's port {port} is not between 1 and 65535")
        _check_host(host)
        return cls(parts.scheme, host, port, parts.raw_path.decode("ascii"), user, password)

    @property
    def authority(self) -> str:
        """What the Host header says."""
        return _with_port(self.host, None if self.port == _SCHEMES[self.scheme] else self.port)

    @property
    def literal(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The address, where the url holds one instead of a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def is_disguised(self) -> bool:
        """Whether the host is a number that resolvers take for an IPv4 address: 2130706433, 0x7f.1, 0177.0.0.1."""
        return self.literal is None and _NUMBER.fullmatch(self.host.rstrip(".").rpartition(".")[2]) is not None

    def below(self, path: str) -> Target:
        """The same place with ``path``, which begins with a slash, behind its own; a query of its own is left out."""
        return replace(self, path=self.path.partition("?")[0].rstrip("/") + path)

    def at(self, address: str) -> str:
        """The url of the same resource at ``address``, to connect to that and to nothing that a second look-up says."""
        return f"{self.scheme}://{_with_port(address, self.port)}{self.path}"


def _with_port(host: str, port: int | None) -> str:
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def _check_host(host: str) -> None:
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("the url's address in brackets is not an IPv6 address") from None
        if address.scope_id is not None:
            raise ValueError("the url's address has a zone: name an address that is the same on every network")
        return
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the url's host is not a name: letters, digits and hyphens, at most 63 between two dots")
