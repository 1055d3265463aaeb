"""The ``[alert]`` section of ``sojourn.toml``: which rules run, who is told, and what may be acted on."""

from __future__ import annotations

import difflib
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from alerts.control.settings import ControlSettings
from alerts.durations import Duration
from alerts.notify.links import check as checked_link
from alerts.notify.settings import ReceiverSettings
from alerts.routing.settings import RouteSettings
from alerts.rules.model import LabelName
from alerts.store.database import Store
from lake.errors import UserError
from lake.secret import Secret
from lake.web.address import authority, is_loopback


class AlertSettings(BaseModel):
    """All settings of the alert process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[Path, ...] = Field(default=(), description="rule files, or folders of *.yml")
    builtin: bool = Field(default=True, description="also run the built-in rules")
    interval: Duration = Field(
        default=timedelta(seconds=1),
        description="longest time between two evaluations; new data brings one at once, "
        "except of rules with a long `for` that nothing matches",
    )
    min_interval: Duration = Field(
        default=timedelta(milliseconds=100), description="shortest time between the starts of two evaluations"
    )
    stale_after: Duration = Field(default=timedelta(seconds=60), description="data older than this is stale")
    store: Secret | None = Field(
        default=None,
        description="where the URL of a PostgreSQL stands, for alert processes of which one evaluates and the others "
        "stand by; SQLite in the lake's folder without it",
    )
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
        default=None,
        description="where people reach this API, for links in notifications, and where a dashboard in another "
        "container asks it",
    )
    dashboard_url: str | None = Field(
        default=None,
        description="where people reach the dashboard: notifications lead to the alert's page there (`generatorURL`); "
        "by default the address of `[dashboard.oidc]`, or this machine's where external_url is not set",
    )
    links: dict[LabelName, Annotated[str, AfterValidator(checked_link)]] = Field(
        default_factory=dict,
        description="annotation → url with labels in it, https://sojourn.example/queue?queue={broker}/{queue} say",
    )
    receivers: tuple[ReceiverSettings, ...] = Field(default=(), description="who is told")
    route: RouteSettings = Field(default_factory=RouteSettings, description="how alerts become notifications")
    control: ControlSettings = Field(default_factory=ControlSettings, description="what may be acted on")

    @field_validator("external_url", "dashboard_url")
    @classmethod
    def _is_a_page(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None and _host_of(url) is None:
            raise ValueError(f"{info.field_name} is http:// or https://, a host, and a path if need be")
        return url

    @property
    def reached_at(self) -> str:
        """Where others ask its API who have not heard from the process itself where it listens."""
        return self.external_url or http_address(self.host, self.port)

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

    def store_of(self, lake_root: Path) -> Store:
        """Where the alert process of that lake keeps what it must not forget. UserError."""
        if self.store is None:
            return lake_root / "state" / "alerts.sqlite"
        url = self.store.read("the URL of the alerts' store")
        try:
            from alerts.store.postgres import Postgres
        except ImportError as error:
            raise UserError("PostgreSQL needs psycopg", "pip install 'sojourn[postgresql]'") from error
        return Postgres(url)

    def token(self) -> str | None:
        """The bearer token that the API asks for; None = open, which is why the default address is loopback."""
        if self.token_env is None:
            return None
        value = os.environ.get(self.token_env, "").strip()
        if not value:
            raise UserError(f"the environment variable {self.token_env} is not set", "set it to the API's bearer token")
        return value


def http_address(host: str, port: int) -> str:
    """Where who listens on ``host`` and ``port`` is asked from the same machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _host_of(url: str) -> str | None:
    scheme, _, rest = url.partition("://")
    parts = authority(re.split("[/?#]", rest, maxsplit=1)[0])
    return parts[0] if parts is not None and scheme in ("http", "https") else None
