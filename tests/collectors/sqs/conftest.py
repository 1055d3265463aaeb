"""A real server of the SQS protocol, and what reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.elasticmq import ElasticMq


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
        "AWS_DEFAULT_REGION",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
        "no_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not/to/be/seen")


@pytest.fixture(scope="session")
def elasticmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticMq]:
    """A server that all tests of SQS share: name queues for your test, and leave it running."""
    with ElasticMq(tmp_path_factory.mktemp("elasticmq")) as server:
        yield server


@pytest.fixture
def own_elasticmq(tmp_path: Path) -> Iterator[ElasticMq]:
    """A server for one test alone, which may kill it."""
    with ElasticMq(tmp_path / "elasticmq") as server:
        yield server
