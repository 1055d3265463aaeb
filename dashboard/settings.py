"""What an operator may set about the dashboard: the section ``[dashboard]`` of ``sojourn.toml``."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lake.secret import Secret
from lake.web.address import is_loopback

#: Names by which a browser on this machine reaches a loopback server.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]", "::1")
_ANY_ADDRESS = ("0.0.0.0", "::", "")


#: Where the provider sends browsers back to; Streamlit's.
CALLBACK = "/oauth2callback"


class ProxySignIn(BaseModel):
    """A proxy that asks people who they are and says so in a header: oauth2-proxy, Authelia, a load balancer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    header: str = Field(
        default="X-Forwarded-User",
        pattern=r"^[A-Za-z0-9-]{1,64}$",
        description="the header with a person's name; X-Forwarded-Email, Remote-User, …",
    )
    addresses: tuple[IPv4Network | IPv6Network, ...] = Field(
        min_length=1, description="the proxy's addresses or networks; nobody else's header is believed"
    )


class OidcSignIn(BaseModel):
    """A provider of OpenID Connect with which people sign in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metadata_url: str = Field(description="the provider's …/.well-known/openid-configuration")
    client_id: str = Field(min_length=1, description="as the provider knows the dashboard")
    client_secret: Secret = Field(description='{ env = "NAME" } or { file = "path" }')
    redirect_uri: str = Field(
        description=f"the dashboard's own address with {CALLBACK}; the provider must know it, too"
    )
    claim: str = Field(
        default="email",
        pattern=r"^[a-z_]{1,64}$",
        description="the claim of the ID token that names a person: email (if the provider verified it), sub, …",
    )
    session_hours: float = Field(default=12, gt=0, le=720, description="after so long, people sign in again")
    cookie_secret: Secret | None = Field(
        default=None, description="what cookies are signed with; by default new with each start, which signs all out"
    )

    @field_validator("metadata_url", "redirect_uri")
    @classmethod
    def _private_on_the_way(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise ValueError("give https://…; http only on this machine")
        return url

    @field_validator("redirect_uri")
    @classmethod
    def _ends_at_the_callback(cls, url: str) -> str:
        if urlsplit(url).path != CALLBACK:
            raise ValueError(f"it ends in {CALLBACK}")
        return url


class DashboardSettings(BaseModel):
    """Where the dashboard listens and how live it is.

    ``port`` 0 means a free one, which :func:`dashboard.run.claim_port` chooses. ``allowed_hosts`` are the names by
    which browsers may address it (against DNS rebinding); needed only where ``host`` is not a loopback address.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8501, ge=0, le=65535, description="TCP port; 0 = a free one")
    allowed_hosts: tuple[str, ...] = Field(default=(), description="further host names browsers may use")
    refresh_seconds: float = Field(default=1.5, ge=0.5, le=3600, description="how often an open page renews itself")
    stale_after_seconds: float = Field(default=15.0, gt=0, description="age from which data are called stale")
    proxy: ProxySignIn | None = Field(default=None, description="a proxy that says who somebody is")
    oidc: OidcSignIn | None = Field(default=None, description="a provider with which people sign in")
    operators: tuple[str, ...] = Field(
        default=(), description="who may change things: names, or patterns such as *@oncall.example.org"
    )
    viewers: tuple[str, ...] = Field(default=("*",), description="who else may look; the same")

    @model_validator(mode="after")
    def _one_sign_in(self) -> DashboardSettings:
        if self.proxy is not None and self.oidc is not None:
            raise ValueError("people sign in by a proxy or by a provider: give either proxy or oidc")
        if self.operators and not self.signs_in:
            raise ValueError("operators are told by their names: give proxy or oidc, which say who somebody is")
        return self

    @property
    def signs_in(self) -> bool:
        """Whether anybody is asked who they are."""
        return self.proxy is not None or self.oidc is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host name that a browser may use."""
        own = () if self.host in _ANY_ADDRESS else (self.host,)
        return tuple(dict.fromkeys((*LOOPBACK_HOSTS, *own, *self.allowed_hosts)))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")

    @property
    def nameless(self) -> bool:
        """Whether the server listens at every address of the machine, but answers to no name beyond the loopback's."""
        return self.host in _ANY_ADDRESS and not self.allowed_hosts
