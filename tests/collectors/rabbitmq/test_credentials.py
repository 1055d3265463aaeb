"""Which credentials are shown where: to the management API, and to the metrics, and to nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from collectors.base import CredentialsRefused
from collectors.rabbitmq.client import Client
from collectors.rabbitmq.settings import RabbitBroker
from tests.support.faulty import FaultyHttp, Reply, Request


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
