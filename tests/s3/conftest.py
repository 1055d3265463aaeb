"""One server of the S3 protocol for a file of tests, and pagers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.alerts.conftest import receivers
from tests.support.s3 import S3Server

__all__ = ["receivers", "server"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3"), noting=True) as server:
        yield server
