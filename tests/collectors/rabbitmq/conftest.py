"""One RabbitMQ node for all tests here, and our settings for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collectors.rabbitmq.settings import RabbitBroker
from tests.support.rabbitmq import RabbitServer

Make = Callable[..., RabbitBroker]


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A node that all tests share: name queues for your test, and leave the node running."""
    server = RabbitServer(tmp_path_factory.mktemp("rabbitmq"), tls=True)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def _list_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """New queues and consumers are listed without the pause that spares a user's broker."""
    monkeypatch.setattr("collectors.rabbitmq.source._LISTED_AGAIN", 0.2)


@pytest.fixture
def broker(rabbit: RabbitServer, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Settings that read the shared node as its administrator, changed as the test wants."""

    def make(*, password: str = rabbit.password, **changes: Any) -> RabbitBroker:
        monkeypatch.setenv("RABBIT_PASSWORD", password)
        values: dict[str, Any] = {
            "name": "mq",
            "url": rabbit.url,
            "metrics_urls": [rabbit.metrics_url],
            "user": rabbit.user,
            "password": {"env": "RABBIT_PASSWORD"},
            "statistics_interval": 0.3,
        }
        return RabbitBroker.model_validate(values | changes)

    return make
