"""What a listener asks of those who come: from which names and pages, with which token, within which limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from lake.errors import UserError
from lake.secret import bears
from lake.web.address import authority, is_address, is_loopback, origin, same_origin

JSON = "application/json"
_MIB = 1024 * 1024
_SCHEMES = ("http", "https")
#: Content types that a web page may send anywhere without being allowed to (Fetch, "CORS-safelisted").
_SIMPLE = frozenset({"text/plain", "multipart/form-data", "application/x-www-form-urlencoded"})


class Refusal(Exception):
    """A request that is not let through: the HTTP status, why, and when it may come again."""

    def __init__(self, status: int, message: str, retry_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_seconds = status, message, retry_seconds


def in_json(scope: Scope, refusal: Refusal) -> Response:
    """A refusal as ``{"error": …}``."""
    return JSONResponse({"error": refusal.message}, refusal.status)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one listener may cost. Seconds, bytes, and numbers of connections."""

    #: From the connection, or a request's first byte, to the end of its headers.
    header_seconds: float = 10.0
    #: From the end of the headers to the end of the body.
    body_seconds: float = 30.0
    #: Between two requests of one connection.
    idle_seconds: float = 15.0
    #: For reading away the body of a request that was refused, and for the peer to take an answer.
    linger_seconds: float = 5.0
    header_bytes: int = 16 * 1024
    #: Of one request, packed and unpacked.
    body_bytes: int = 16 * _MIB
    #: Of all requests that were not answered yet.
    bytes_in_flight: int = 64 * _MIB
    connections: int = 1_000
    #: Of one peer that has not shown a token (or, where none is asked for, has sent no proper request) lately.
    unknown_peer_connections: int = 250
    #: Of ``connections``, how many only peers may have that have.
    reserved_connections: int = 250


@dataclass(frozen=True, slots=True)
class Entrance:
    """One path: the content types of a body (none: it has no body), and whether it asks for the token.

    ``token`` is one of its own, in place of the listener's.
    """

    takes: frozenset[str] = frozenset()
    open: bool = False
    token: str | None = None


@dataclass(frozen=True)
class Policy:
    """The rules of one listener, bound to ``host``. ``names`` are the host names by which it is reached from elsewhere,
    ``origins`` the web pages that may ask it; ``entrances`` are paths, a prefix where they end in ``/``. With
    ``any_name`` it answers under whatever name: others reach it anyway, and may see what it says. With ``pages`` it
    serves web pages: others may link to them, and a proxy may speak TLS in front of it, under a name of its own."""

    host: str = "127.0.0.1"
    token: str | None = None
    names: Sequence[str] = ()
    origins: Sequence[str] = ()
    entrances: Mapping[str, Entrance] = field(default_factory=dict)
    limits: Limits = Limits()
    refusal: Callable[[Scope, Refusal], Response] = in_json
    any_name: bool = False
    pages: bool = False

    def guarded(self, section: str) -> Policy:
        """Itself; UserError where others than this machine's could come without a token, or a name is none.

        ``section`` names the settings to change, ``[collect.receive]`` say.
        """
        if not is_loopback(self.host) and any(not one.open and not self._token(one) for one in self._all()):
            raise UserError(
                f"{section} listens on {self.host}, which others reach, without a token",
                "set a token, or listen on 127.0.0.1",
            )
        for name in self.names:
            if (authority(name) or (None, 0))[1] is not None:
                raise UserError(f"{section}: {name!r} is no host name", "give names or addresses without a port")
        for page in self.origins:
            if origin(page) is None:
                raise UserError(f"{section}: {page!r} is no origin", "give https://name or https://name:port")
        return self

    def entrance(self, path: str) -> Entrance:
        """The rules for ``path``."""
        found = self.entrances.get(path)
        if found is not None:
            return found
        prefixes = [one for one in self.entrances if one.endswith("/") and path.startswith(one)]
        return self.entrances[max(prefixes, key=len)] if prefixes else Entrance()

    def check(self, path: str, scheme: str, headers: Sequence[tuple[bytes, bytes]]) -> Entrance:
        """The entrance of a request; Refusal. Looks at headers alone, so before anything of a body is kept."""
        told = _Headers(headers)
        host = self._checked_host(told)
        self._check_page(told, scheme, host)
        entrance = self.entrance(path)
        token = self._token(entrance)
        if token and not entrance.open and not bears(told.all(b"authorization"), token):
            raise Refusal(401, "the bearer token is missing or wrong")
        return entrance

    def _token(self, entrance: Entrance) -> str | None:
        return entrance.token or self.token

    def _all(self) -> list[Entrance]:
        return [*self.entrances.values(), Entrance()]

    def _checked_host(self, told: _Headers) -> tuple[str, int | None]:
        given = told.one(b"host")
        parts = None if given is None else authority(given)
        if parts is None:
            raise Refusal(400, "the Host header is malformed")
        name = parts[0]
        if self.any_name or is_loopback(name) or name in {one.lower().rstrip(".") for one in (*self.names, self.host)}:
            return parts
        # An address cannot be rebound: a page that has it as its origin came from there.
        if is_address(name) and not is_loopback(self.host):
            return parts
        raise Refusal(421, f"{name} is not a name of this server: its settings list others under 'hosts'")

    def _check_page(self, told: _Headers, scheme: str, host: tuple[str, int | None]) -> None:
        """No web page but our own and those listed, whether the browser tells by Origin or by Sec-Fetch-Site."""
        pages = told.all(b"origin")
        allowed = False
        for page in pages:
            if page == "null":
                raise Refusal(403, "no web page may ask this server")
            parts = origin(page)
            if parts is None:
                raise Refusal(400, "the Origin header is malformed")
            schemes = _SCHEMES if self.pages and not is_loopback(host[0]) else (scheme,)
            allowed = any(same_origin(parts, one, host) for one in schemes)
            allowed = allowed or parts in [origin(one) for one in self.origins]
            if not allowed:
                raise Refusal(403, "no web page of another origin may ask this server")
        if self.pages and told.all(b"sec-fetch-mode") == ["navigate"] and told.all(b"sec-fetch-dest") == ["document"]:
            return  # somebody follows a link; what comes of it stands in a window of its own
        if not allowed and any(site not in ("same-origin", "none") for site in told.all(b"sec-fetch-site")):
            raise Refusal(403, "no web page of another site may ask this server")


def check_content_type(entrance: Entrance, kind: str, has_body: bool) -> None:
    """Refusal of a body that the entrance does not take; ``kind`` is the content type in lower case, bare."""
    if entrance.takes:
        if (has_body or kind) and kind not in entrance.takes:
            raise Refusal(415, f"the content type is {' or '.join(sorted(entrance.takes))}")
    elif has_body:
        raise Refusal(413, "no body is expected here")
    if kind in _SIMPLE:
        raise Refusal(415, f"{kind} is not taken")


def content_type(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """The content type, bare and in lower case; empty where there is none or more than one."""
    return (_Headers(headers).one(b"content-type") or "").partition(";")[0].strip().lower()


class _Headers:
    """The headers of a request as texts."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def all(self, name: bytes) -> list[str]:
        return [value.decode("latin-1").strip() for key, value in self._raw if key == name]

    def one(self, name: bytes) -> str | None:
        found = self.all(name)
        return found[0] if len(found) == 1 else None
