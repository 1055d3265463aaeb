"""Who looks at the pages and what they may do: viewers read, operators write as well.

Who somebody is comes from a sign-in by OpenID Connect, or from a proxy's header, which
:mod:`dashboard.trusted_header` takes from the configured addresses alone. Without either, whoever sits at this machine
is an operator, as at its command line; whoever comes from elsewhere is a viewer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

import streamlit as st

from dashboard.run import SETTINGS_VARIABLE
from dashboard.settings import DashboardSettings
from lake.visible import visible
from lake.web.address import authority, is_loopback

#: How a person is called where nobody signs in.
HERE, ELSEWHERE = "somebody at this machine", "somebody"
#: What a proxy adds; a request that has one of these did not come from a browser on this machine.
FORWARDED = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"})
_LONGEST = 200


class Role(StrEnum):
    """What somebody may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may look; ``name`` is what the journal says."""

    name: str
    role: Role

    @property
    def may_write(self) -> bool:
        """Whether they may change anything."""
        return self.role is Role.OPERATOR


def present() -> Person | None:
    """Who looks at the page that is being made; None: nobody who may."""
    settings = DashboardSettings.model_validate_json(os.environ.get(SETTINGS_VARIABLE) or "{}")
    claims = st.user.to_dict() if settings.oidc is not None else {}
    return person(settings, st.context.headers.to_dict(), claims, datetime.now(UTC))


def person(
    settings: DashboardSettings, headers: Mapping[str, str], claims: Mapping[str, Any], now: datetime
) -> Person | None:
    """Who sent ``headers`` (those of a proxy only where it may be believed) and has signed in with ``claims``."""
    told = {name.lower(): value for name, value in headers.items()}
    if settings.oidc is not None:
        name = _signed_in(claims, settings.oidc.claim, settings.oidc.session_hours, now)
    elif settings.proxy is not None:
        name = _name(told.get(settings.proxy.header.lower()))
    else:
        return Person(HERE, Role.OPERATOR) if _sits_here(settings, told) else Person(ELSEWHERE, Role.VIEWER)
    if name and _matches(name, settings.operators):
        return Person(name, Role.OPERATOR)
    return Person(name, Role.VIEWER) if name and _matches(name, settings.viewers) else None


def _signed_in(claims: Mapping[str, Any], claim: str, hours: float, now: datetime) -> str:
    """The name in the claims of an ID token (OpenID Connect Core 1.0, section 2); empty where it is too old."""
    since = claims.get("iat")
    if claims.get("is_logged_in") is not True or not isinstance(since, (int, float)):
        return ""
    if not -300 <= now.timestamp() - since <= hours * 3600:
        return ""
    if claim == "email" and claims.get("email_verified", True) not in (True, "true"):
        return ""  # whoever signs up may claim any address
    return _name(claims.get(claim))


def _name(told: Any) -> str:
    name = visible(told.strip()) if isinstance(told, str) else ""
    return name if len(name) <= _LONGEST else ""


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def _sits_here(settings: DashboardSettings, told: Mapping[str, str]) -> bool:
    """Whether only a browser on this machine can have sent ``told``, as far as that can be seen."""
    if not settings.loopback or settings.allowed_hosts or FORWARDED & told.keys():
        return False
    host = authority(told["host"]) if "host" in told else None
    return host is None or is_loopback(host[0])
