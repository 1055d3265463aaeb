"""Who may look and who may write, by whom they are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from dashboard.people import Role, person
from dashboard.settings import DashboardSettings
from dashboard.trusted_header import TrustedHeader

NOW = datetime(2026, 3, 1, 3, 7, tzinfo=UTC)
PROXY = {"addresses": ["10.0.0.0/8", "::1/128"]}
OIDC = {
    "metadata_url": "https://id.example.org/.well-known/openid-configuration",
    "client_id": "sojourn",
    "client_secret": {"env": "SECRET"},
    "redirect_uri": "https://queues.example.org/oauth2callback",
}
SIGNED_IN = {"is_logged_in": True, "iat": NOW.timestamp() - 60, "email": "ada@example.org", "email_verified": True}


def settings(**told: Any) -> DashboardSettings:
    return DashboardSettings.model_validate(told)


def role(told: DashboardSettings, headers: dict[str, str] | None = None, **claims: Any) -> Role | None:
    found = person(told, headers or {}, claims, NOW)
    return None if found is None else found.role


@pytest.mark.parametrize(
    ("told", "headers", "expected"),
    [
        ({}, {"Host": "localhost:8501"}, Role.OPERATOR),
        ({}, {"Host": "127.0.0.1:8501"}, Role.OPERATOR),
        ({}, {"Host": "[::1]:8501"}, Role.OPERATOR),
        ({}, {"Host": "queues.example.org"}, Role.VIEWER),
        ({}, {"Host": "localhost:8501", "X-Forwarded-For": "192.0.2.7"}, Role.VIEWER),
        ({}, {"Host": "localhost:8501", "Via": "1.1 proxy"}, Role.VIEWER),
        ({"allowed_hosts": ["queues.example.org"]}, {"Host": "localhost:8501"}, Role.VIEWER),
        ({"host": "0.0.0.0", "allowed_hosts": ["a.example"]}, {"Host": "localhost"}, Role.VIEWER),
        ({"host": "192.0.2.7"}, {"Host": "192.0.2.7"}, Role.VIEWER),
    ],
)
def test_without_a_sign_in_only_who_sits_at_this_machine_may_write(
    told: dict[str, Any], headers: dict[str, str], expected: Role
) -> None:
    assert role(settings(**told), headers) is expected


def test_a_proxys_word_makes_operators_of_those_who_are_listed_and_viewers_of_the_others() -> None:
    told = settings(proxy=PROXY, operators=["ada@example.org", "*@oncall.example.org"], viewers=["*@example.org"])
    for name, expected in {
        "ada@example.org": Role.OPERATOR,
        "ADA@example.org": Role.OPERATOR,
        "bob@oncall.example.org": Role.OPERATOR,
        "eve@example.org": Role.VIEWER,
        "eve@evil.example": None,
        "ada@example.org\nx@evil.example": None,
        "a" * 300: None,
        "": None,
    }.items():
        assert role(told, {"x-forwarded-user": name}) is expected, name
    assert role(told, {}) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, Role.OPERATOR),
        ({"email": "eve@example.org"}, Role.VIEWER),
        ({"email_verified": False}, None),
        ({"email_verified": "false"}, None),
        ({"is_logged_in": False}, None),
        ({"is_logged_in": "yes"}, None),
        ({"iat": None}, None),
        ({"iat": NOW.timestamp() - 13 * 3600}, None),
        ({"iat": NOW.timestamp() + 3600}, None),
        ({"email": None}, None),
        ({"email": ["ada@example.org"]}, None),
    ],
)
def test_a_sign_in_counts_while_it_is_new_and_names_an_address_that_was_verified(
    changed: dict[str, Any], expected: Role | None
) -> None:
    told = settings(oidc=OIDC, operators=["ada@example.org"])
    assert role(told, {"x-forwarded-user": "ada@example.org"}, **{**SIGNED_IN, **changed}) is expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"operators": ["ada"]},
        {"proxy": PROXY, "oidc": OIDC},
        {"proxy": {"addresses": []}},
        {"proxy": {**PROXY, "header": "X User"}},
        {"oidc": {**OIDC, "metadata_url": "http://id.example.org/x"}},
        {"oidc": {**OIDC, "redirect_uri": "https://queues.example.org/"}},
        {"oidc": {**OIDC, "client_secret": "hunter2"}},
    ],
)
def test_settings_that_would_let_in_nobody_or_everybody_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)


@pytest.mark.parametrize(
    ("peer", "told", "heard"),
    [
        ("10.1.2.3", ["ada"], ["ada"]),
        ("::ffff:10.1.2.3", ["ada"], ["ada"]),
        ("::1", ["ada"], ["ada"]),
        ("192.0.2.7", ["ada"], []),
        ("10.1.2.3", ["ada", "eve"], []),
        (None, ["ada"], []),
        ("testclient", ["ada"], []),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_header_is_heard_from_the_proxys_addresses_alone_and_only_once(
    kind: str, peer: str | None, told: list[str], heard: list[str]
) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value.decode() for name, value in scope["headers"] if name.lower() == b"x-forwarded-user")

    proxy = settings(proxy=PROXY).proxy
    assert proxy is not None
    raw = [(b"host", b"queues.example.org"), *((b"X-Forwarded-User", one.encode()) for one in told)]
    scope = {"type": kind, "headers": raw, "client": None if peer is None else (peer, 1234)}
    await TrustedHeader(app, proxy.header, proxy.addresses)(scope, None, None)  # type: ignore[arg-type]
    assert seen == heard


def test_a_day_has_more_hours_than_a_sign_in_lasts_unless_told() -> None:
    old = {**SIGNED_IN, "iat": (NOW - timedelta(hours=20)).timestamp()}
    assert role(settings(oidc=OIDC), **old) is None
    assert role(settings(oidc={**OIDC, "session_hours": 24}), **old) is Role.VIEWER
