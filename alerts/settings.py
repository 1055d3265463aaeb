"""The ``[alert]`` section of ``sojourn.toml``: which rules run, who is told, and what may be acted on."""

from __future__ import annotations

import difflib
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from alerts.control.settings import ControlSettings
from alerts.durations import Duration
from alerts.notify.guard import refusal
from alerts.notify.target import Target
from alerts.routing.settings import RouteSettings
from lake.errors import UserError
from lake.web.address import authority, is_loopback

#: Attempts that take longer would hold a place for too long.
LONGEST_TIMEOUT = timedelta(minutes=5)


class ReceiverSettings(BaseModel):
    """One webhook that is told of alerts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="how the receiver is called in logs, deliveries and payloads")
    url: str = Field(description="where notifications are POSTed: http or https")
    format: Literal["alertmanager"] = Field(default="alertmanager", description="shape of the body: webhook version 4")
    secret_env: str | None = Field(default=None, description="environment variable that holds the signing key, whsec_…")
    secret_file: Path | None = Field(default=None, description="file that holds the signing key, whsec_…")
    allow_private: bool = Field(
        default=False, description="let the url lead to loopback, private or link-local addresses"
    )
    send_resolved: bool = Field(default=True, description="also tell when alerts resolve")
    match: dict[str, str] = Field(default_factory=dict, description="only alerts that carry all of these labels")
    repeat_interval: Duration | None = Field(
        default=None, description="when to repeat to it what still fires [default: the route's]"
    )
    timeout: Duration = Field(default=timedelta(seconds=10), description="how long one attempt may take, at most 5m")
    retry_for: Duration = Field(
        default=timedelta(hours=24), description="how long a delivery is tried before it is given up"
    )

    @field_validator("url")
    @classmethod
    def _leads_somewhere(cls, url: str) -> str:
        Target.of(url)
        return url

    @field_validator("timeout")
    @classmethod
    def _ends(cls, timeout: timedelta) -> timedelta:
        if not timedelta(0) < timeout <= LONGEST_TIMEOUT:
            raise ValueError("a timeout is more than 0 and at most 5m")
        return timeout

    @model_validator(mode="after")
    def _leads_outside(self) -> Self:
        why = None if self.allow_private else refusal(Target.of(self.url))
        if why is not None:
            raise ValueError(f"receiver {self.name}: {why}")
        return self

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if self.secret_env and self.secret_file:
            raise ValueError("give secret_env or secret_file, not both")
        return self

    def secret(self) -> str | None:
        """The signing key; None if the receiver has none. UserError if it is named but cannot be read."""
        if self.secret_env:
            value = os.environ.get(self.secret_env, "").strip()
            if not value:
                raise UserError(
                    f"receiver {self.name}: the environment variable {self.secret_env} is not set",
                    "set it to the signing key, whsec_…",
                )
            return value
        if self.secret_file:
            try:
                return self.secret_file.expanduser().read_text(encoding="utf-8").strip()
            except OSError as error:
                raise UserError(
                    f"receiver {self.name}: cannot read {self.secret_file}: {error.strerror}",
                    "put the signing key there",
                ) from error
        return None


class AlertSettings(BaseModel):
    """All settings of the alert process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[Path, ...] = Field(default=(), description="rule files, or folders of *.yml")
    builtin: bool = Field(default=True, description="also run the built-in rules")
    interval: Duration = Field(
        default=timedelta(seconds=1), description="longest time between two evaluations; new data brings one at once"
    )
    min_interval: Duration = Field(
        default=timedelta(milliseconds=250), description="shortest time between the starts of two evaluations"
    )
    stale_after: Duration = Field(default=timedelta(seconds=60), description="data older than this is stale")
    host: str = Field(
        default="127.0.0.1", description="address of the limits and alerts API; any but the loopback's needs a token"
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="names by which others reach it, beside external_url's, its address and the loopback's"
    )
    port: int = Field(
        default=9095, ge=0, le=65535, description="its port; 0 = any free one, told in state/run/alerts.json"
    )
    token_env: str | None = Field(default=None, description="environment variable with the API's bearer token")
    external_url: str | None = Field(
        default=None, description="where people reach this API, for links in notifications"
    )
    receivers: tuple[ReceiverSettings, ...] = Field(default=(), description="who is told")
    route: RouteSettings = Field(default_factory=RouteSettings, description="how alerts become notifications")
    control: ControlSettings = Field(default_factory=ControlSettings, description="what may be acted on")

    @field_validator("external_url")
    @classmethod
    def _is_a_page(cls, url: str | None) -> str | None:
        if url is not None and _host_of(url) is None:
            raise ValueError("external_url is http:// or https://, a host, and a path if need be")
        return url

    @property
    def names(self) -> tuple[str, ...]:
        """The host names that requests may be addressed to, beside the address and the loopback's."""
        host = _host_of(self.external_url or "")
        return self.hosts if host is None else (*self.hosts, host)

    @model_validator(mode="after")
    def _receivers_are_known(self) -> Self:
        names = [receiver.name for receiver in self.receivers]
        if len(set(names)) < len(names):
            raise ValueError("two receivers have the same name")
        if self.route.watchdog is not None and self.route.watchdog not in names:
            raise ValueError(f"route.watchdog names {self.route.watchdog!r}, which is not a receiver")
        if unknown := sorted(self.route.named_receivers - {*names}):
            near = difflib.get_close_matches(unknown[0], names, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"a route names {unknown[0]!r}, which is not a receiver{hint}")
        if self.token_env is None and not is_loopback(self.host):
            raise ValueError("a host other than the loopback needs token_env, the name of an environment variable")
        return self

    def token(self) -> str | None:
        """The bearer token that the API asks for; None = open, which is why the default address is loopback."""
        if self.token_env is None:
            return None
        value = os.environ.get(self.token_env, "").strip()
        if not value:
            raise UserError(f"the environment variable {self.token_env} is not set", "set it to the API's bearer token")
        return value


def _host_of(url: str) -> str | None:
    scheme, _, rest = url.partition("://")
    parts = authority(re.split("[/?#]", rest, maxsplit=1)[0])
    return parts[0] if parts is not None and scheme in ("http", "https") else None
