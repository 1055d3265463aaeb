"""Which credentials are shown where: to the management API, and to the metrics, and to nobody else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.rabbitmq.client import Client
from collectors.rabbitmq.settings import RabbitBroker
from collectors.rabbitmq.tokens import Bearer, Tokens
from tests.collectors.rabbitmq.reading import opened, read_until
from tests.support.facts import proves
from tests.support.faulty import FaultyHttp, Reply, Request
from tests.support.rabbitmq import RabbitServer, signed_token


def guarded(header: str, body: bytes) -> Any:
    """Answers whoever shows ``header``."""

    def rule(request: Request) -> Reply:
        return Reply(200, body) if request.headers.get("Authorization") == header else Reply(401)

    return rule


def test_a_token_is_shown_to_the_management_api_and_read_anew_when_it_has_changed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    with FaultyHttp(rule=guarded("Bearer second", b"{}")) as server:
        client = Client(RabbitBroker.model_validate({"url": server.url, "token": {"file": token}}))
        client.open()
        with pytest.raises(CredentialsRefused):
            client.overview()
        token.write_text("second")
        client.open()  # as after any refusal
        assert client.overview() == {}
        client.close()


def test_the_metrics_have_credentials_of_their_own_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANAGEMENT", "one")
    monkeypatch.setenv("METRICS", "two")
    own = {"metrics_user": "scraper", "metrics_password": {"env": "METRICS"}}
    with FaultyHttp(rule=guarded("Basic c2NyYXBlcjp0d28=", b"# metrics")) as server:
        chosen = {"user": "sojourn", "password": {"env": "MANAGEMENT"}, "metrics_urls": [server.url]}
        client = Client(RabbitBroker.model_validate(chosen | own))
        client.open()
        assert client.metrics() == [b"# metrics"]
        without = Client(RabbitBroker.model_validate(chosen))
        without.open()
        with pytest.raises(CredentialsRefused):
            without.metrics()
        assert "Authorization" not in server.seen[-1].headers
        client.close()
        without.close()


@pytest.mark.parametrize(
    "wrong", [{"metrics_user": "u"}, {"token": {"env": "T"}, "user": "u", "password": {"env": "P"}}]
)
def test_credentials_are_whole_and_not_of_two_kinds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RabbitBroker.model_validate(wrong)


KEY = "signs-for-the-tests"


@contextmanager
def provider(lifetime: int = 300) -> Iterator[tuple[str, list[str]]]:
    """A token endpoint that gives tokens to whoever knows the secret, and what was asked of it."""
    asked: list[str] = []

    def answer(request: Request) -> Reply:
        asked.append(request.body.decode())
        if request.headers.get("Authorization") != "Basic c29qb3VybjpyaWdodA==":
            return Reply(401, b'{"error": "invalid_client"}')
        now = int(time.time())
        claims = {"aud": ["rabbitmq"], "sub": "sojourn", "iat": now, "exp": now + 600}
        token = signed_token(KEY, claims | {"scope": ["rabbitmq.tag:monitoring", "rabbitmq.read:*/*"]})
        body = json.dumps({"access_token": token, "token_type": "bearer", "expires_in": lifetime}).encode()
        return Reply(200, body, {"Content-Type": "application/json"})

    with FaultyHttp(rule=answer) as server:
        yield f"{server.url}/token", asked


def fetched(url: str, token_url: str, **more: Any) -> RabbitBroker:
    oauth = {"token_url": token_url, "client_id": "sojourn", "client_secret": {"env": "CLIENT_SECRET"}}
    asked = {**oauth, "scope": "rabbitmq.tag:monitoring"}
    return RabbitBroker.model_validate({"url": url, "api": "management", "oauth": asked, **more})


@proves("rabbitmq", "auth", "OAuth 2 by client credentials")
async def test_a_token_that_is_fetched_by_client_credentials_opens_a_real_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "right")
    with RabbitServer(tmp_path / "rabbit", token_key=KEY) as server, provider() as (token_url, asked):
        with server.connect() as connection:
            connection.channel().queue_declare("tokened", durable=True)
        async with opened(fetched(server.url, token_url)) as source:
            found = await read_until(source, lambda found: found["tokened"].depth == 0)
        assert found["tokened"].consumers == 0
        assert asked == ["grant_type=client_credentials&scope=rabbitmq.tag%3Amonitoring"]  # once for all requests
        monkeypatch.setenv("CLIENT_SECRET", "wrong")
        with pytest.raises(CredentialsRefused, match="refuses us: invalid_client") as refused:
            async with opened(fetched(server.url, token_url)) as source:
                await source.read()
        assert "wrong" not in str(refused.value)


def test_a_token_is_fetched_anew_before_it_ends_and_where_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "right")
    now = [0.0]
    with provider(lifetime=100) as (token_url, asked):
        settings = fetched("http://127.0.0.1:1", token_url).oauth
        assert settings is not None
        tokens = Tokens(settings, "a test", 5.0, clock=lambda: now[0])
        first = tokens.token()
        now[0] = 79.0
        assert tokens.token() == first and len(asked) == 1
        now[0] = 81.0
        tokens.token()
        assert len(asked) == 2
        shown = Bearer(lambda: "old", tokens.fetch).auth_flow(httpx.Request("GET", "http://node/api"))
        assert next(shown).headers["Authorization"] == "Bearer old"
        again = shown.send(httpx.Response(401))
        assert again.headers["Authorization"] not in ("Bearer old", "") and len(asked) == 3
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        tokens.fetch()
