"""What an operator may set about the dashboard: the section ``[dashboard]`` of ``sojourn.toml``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

#: Names by which a browser on this machine reaches a loopback server.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]", "::1")
_ANY_ADDRESS = ("0.0.0.0", "::", "")


class DashboardSettings(BaseModel):
    """Where the dashboard listens and how live it is.

    ``port`` 0 means a free one, which :func:`dashboard.run.claim_port` chooses. ``allowed_hosts`` are the names by
    which browsers may address it (against DNS rebinding); needed only where ``host`` is not a loopback address.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8501, ge=0, le=65535, description="TCP port; 0 = a free one")
    allowed_hosts: tuple[str, ...] = Field(default=(), description="further host names browsers may use")
    refresh_seconds: float = Field(default=2.0, ge=0.5, le=3600, description="how often an open page renews itself")
    stale_after_seconds: float = Field(default=15.0, gt=0, description="age from which data are called stale")

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
