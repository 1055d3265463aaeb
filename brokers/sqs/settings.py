"""Where one account and region of Amazon SQS is, or a server that speaks its protocol, and who we are there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import Settings, Tls, without_secrets
from lake.secret import Secret


class SqsAccount(Settings):
    """One account and region. Credentials are found as the AWS tools find them, unless they are referred to here."""

    name: str = Field(default="sqs", min_length=1)
    region: str = Field(
        default_factory=lambda: _region(os.environ),
        validate_default=True,
        pattern=r"^[a-z0-9-]+$",
        description="else what AWS_REGION or AWS_DEFAULT_REGION name, else us-east-1",
    )
    endpoint: str | None = Field(default=None, description="another server than Amazon's; only then may it be http")
    fips: bool = Field(default=False, description="ask the region's FIPS endpoints")
    dual_stack: bool = Field(default=False, description="ask the region's endpoints that IPv6 reaches, too")
    profile: str | None = Field(default=None, description="profile of the AWS configuration to take credentials from")
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    role_arn: str | None = Field(
        default=None, pattern=r"^arn:[a-z-]+:iam::\d{12}:role/.+$", description="role to assume with those credentials"
    )
    external_id: str | None = Field(default=None, min_length=2, description="what the role's trust policy asks for")
    request_timeout: float = Field(default=3.0, ge=0.05, le=60, description="seconds that one answer may take")
    tls: Tls = Tls()

    @field_validator("endpoint")
    @classmethod
    def _an_address(cls, endpoint: str | None) -> str | None:
        return endpoint if endpoint is None else http_root(endpoint)

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("a session_token needs its access_key_id and secret_access_key")
        if self.external_id is not None and self.role_arn is None:
            raise ValueError("an external_id needs its role_arn")
        if self.profile is not None and self.access_key_id is not None:
            raise ValueError("give either profile or access_key_id")
        if self.endpoint is not None and (self.fips or self.dual_stack):
            raise ValueError("fips and dual_stack choose among the region's own endpoints: leave endpoint out")
        if self.tls.enabled and self.url.startswith("http:"):  # ValueError where the region has none of that kind
            raise ValueError("tls needs an https endpoint")
        return self

    @property
    def url(self) -> str:
        """Where SQS answers, without a closing slash."""
        return self.endpoint or self.of_region("sqs")

    def of_region(self, service: str) -> str:
        """Where ``service`` answers in the region; ValueError where AWS has none of that kind there."""
        try:
            from brokers.sqs.endpoints import endpoint
        except ModuleNotFoundError:  # nothing can be asked then, which whoever asks says
            return f"https://{service}.{self.region}.amazonaws.com"
        return endpoint(service, self.region, fips=self.fips, dual_stack=self.dual_stack)


def _region(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"


def http_root(url: str) -> str:
    """``url`` as requests are signed for it, without a path or the scheme's own port; ValueError where it is none."""
    parts = urlsplit(without_secrets(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an endpoint is https://host or, on a trusted network, http://host")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("an endpoint has no path: the protocol's requests all go to its root")
    standard = {"http": 80, "https": 443}[parts.scheme]
    port = "" if parts.port in (None, standard) else f":{parts.port}"  # left out, as signatures want it
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}"
