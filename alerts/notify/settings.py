"""The ``[[alert.receivers]]`` sections: who is told, where, and in which format."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from alerts.durations import Duration
from alerts.notify.guard import refusal
from alerts.notify.notifiers import alertmanager, opsgenie, pagerduty
from alerts.notify.notifiers.template import compiled
from alerts.notify.target import MAIL_SCHEMES, Target
from lake.errors import UserError
from lake.web.address import is_loopback

#: Attempts that take longer would hold a place for too long.
LONGEST_TIMEOUT = timedelta(minutes=5)
Format = Literal["webhook", "alertmanager", "pagerduty", "opsgenie", "slack", "teams", "email", "template"]
#: Where a format has one address for everybody.
_URLS = {"pagerduty": pagerduty.URL, "opsgenie": opsgenie.URL}
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


class ReceiverSettings(BaseModel):
    """One receiver that is told of alerts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="how the receiver is called in logs, deliveries and payloads")
    url: str = Field(
        description="where notifications are POSTed, http or https; for `email` the mail server, smtp or smtps "
        "[default: PagerDuty's and Opsgenie's own]",
        repr=False,
    )
    url_env: str | None = Field(default=None, description="environment variable with the url, where that is a secret")
    url_file: Path | None = Field(default=None, description="file that holds the url instead")
    format: Format = Field(default="webhook", description="what is sent; `webhook` is Alertmanager's, version 4")
    secret_env: str | None = Field(
        default=None,
        description="environment variable with the key: `webhook`: whsec_…, which signs; `pagerduty`: the routing key; "
        "`opsgenie`: the API key; `alertmanager`, `template`: a bearer token; `email`: the password",
    )
    secret_file: Path | None = Field(default=None, description="file that holds the key instead")
    old_secret_env: str | None = Field(
        default=None, description="environment variable with the key before it: while it is there, both sign"
    )
    old_secret_file: Path | None = Field(default=None, description="file that holds the key before it instead")
    allow_private: bool = Field(
        default=False, description="let the url lead to loopback, private or link-local addresses"
    )
    send_resolved: bool = Field(default=True, description="also tell when alerts resolve")
    match: dict[str, str] = Field(default_factory=dict, description="only alerts that carry all of these labels")
    repeat_interval: Duration | None = Field(
        default=None, description="when to repeat to it what still fires [default: the route's; `alertmanager`: 1m]"
    )
    timeout: Duration = Field(default=timedelta(seconds=10), description="how long one attempt may take, at most 5m")
    retry_for: Duration = Field(
        default=timedelta(hours=24), description="how long a delivery is tried before it is given up"
    )
    template: str | None = Field(default=None, description="`template`: the body, in the language of annotations")
    content_type: str = Field(
        default="application/json",
        pattern=r"^[a-z]+/[A-Za-z0-9.+-]+(; ?charset=utf-8)?$",
        description="`template`: what the body is; JSON is checked",
    )
    mail_from: str = Field(default="", description="`email`: the address that it comes from")
    mail_to: tuple[str, ...] = Field(default=(), max_length=100, description="`email`: the addresses that it goes to")
    starttls: bool = Field(default=True, description="`email`, smtp: encrypt, or do not send")

    @model_validator(mode="before")
    @classmethod
    def _known_url(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        named = [name for name in ("url", "url_env", "url_file") if given.get(name)]
        if len(named) > 1:
            raise ValueError(f"give {' or '.join(named)}, not both")
        if "url_env" in named:
            url = os.environ.get(str(given["url_env"]), "").strip()
            if not url:
                raise ValueError(f"the environment variable {given['url_env']} is not set: set it to the url")
            return {**given, "url": url}
        if "url_file" in named:
            try:
                return {**given, "url": Path(given["url_file"]).expanduser().read_text(encoding="utf-8").strip()}
            except (OSError, UnicodeError) as error:
                raise ValueError(f"cannot read {given['url_file']}: put the url there") from error
        if "url" not in given and given.get("format") in _URLS:
            return {**given, "url": _URLS[given["format"]]}
        return given

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

    @field_validator("mail_from", "mail_to")
    @classmethod
    def _is_an_address(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for address in (given,) if isinstance(given, str) else given:
            if address and _ADDRESS.fullmatch(address) is None:
                raise ValueError(f"{address[:80]!r} is not a mail address: write ops@example.org")
        return given

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
        if self.old_secret_env and self.old_secret_file:
            raise ValueError("give old_secret_env or old_secret_file, not both")
        if self.format != "webhook" and (self.old_secret_env or self.old_secret_file):
            raise ValueError("only a webhook's keys sign, and so can be two")
        return self

    @model_validator(mode="after")
    def _fits_its_format(self) -> Self:
        target = Target.of(self.url)
        if (target.scheme in MAIL_SCHEMES) != (self.format == "email"):
            raise ValueError("the url of a receiver is smtp:// or smtps:// for `email`, else http:// or https://")
        if self.format == "email":
            if not self.mail_from or not self.mail_to:
                raise ValueError("email needs mail_from and mail_to")
            if target.scheme == "smtp" and not self.starttls and target.user and not is_loopback(target.host):
                raise ValueError("a password is sent over TLS alone: set starttls")
        elif self.mail_from or self.mail_to:
            raise ValueError("mail_from and mail_to are for the format `email`")
        if (self.template is not None) != (self.format == "template"):
            raise ValueError("template is for the format `template`, which needs it")
        if self.template is not None:
            compiled(self.template)
        return self

    @property
    def repeats(self) -> timedelta | None:
        """When what still fires is repeated to it; None = as its route says."""
        return self.repeat_interval or (alertmanager.RESEND if self.is_kept_alive else None)

    @property
    def is_kept_alive(self) -> bool:
        """Whether it takes for over what is not repeated, so that all that it was told must be."""
        return self.format == "alertmanager"

    def secret(self) -> str | None:
        """The key; None if the receiver has none. UserError if it is named but cannot be read."""
        return self._read(self.secret_env, self.secret_file)

    def old_secret(self) -> str | None:
        """The key before it, which signs as well."""
        return self._read(self.old_secret_env, self.old_secret_file)

    def _read(self, variable: str | None, file: Path | None) -> str | None:
        if variable:
            value = os.environ.get(variable, "").strip()
            if not value:
                raise UserError(
                    f"receiver {self.name}: the environment variable {variable} is not set", "set it to the key"
                )
            return value
        if file:
            try:
                return file.expanduser().read_text(encoding="utf-8").strip()
            except OSError as error:
                raise UserError(
                    f"receiver {self.name}: cannot read {file}: {error.strerror}", "put the key there"
                ) from error
        return None
