"""What every collector promises, over each kind and an in-memory fake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from collectors.base import Collector, ConnectionLost
from collectors.board import Board
from collectors.context import Context
from collectors.registry import KINDS, factory
from collectors.selfmetrics import SelfMetrics
from collectors.writer import Writer
from lake.errors import UserError
from lake.store import Lake
from tests.collectors.support import make_queue, settings
from tests.collectors.test_run import Fake
from tests.support.nats import NatsServer


class FakeBroker(Fake):
    """A fake that loses its connection when its broker is stopped."""

    def __init__(self, server: NatsServer) -> None:
        super().__init__()
        self._server = server

    async def open(self) -> None:
        if self._server._process is None:
            raise ConnectionLost("nobody there")
        await super().open()

    async def step(self) -> None:
        if self._server._process is None:
            raise ConnectionLost("gone")
        await super().step()


@pytest.fixture(params=["nats-sampler", "nats-tap", "fake"])
def collector(request: pytest.FixtureRequest, own_nats_server: NatsServer, tmp_path: Path) -> Iterator[Collector]:
    make_queue(own_nats_server.url)
    chosen = settings(own_nats_server.url)
    lake = Lake(tmp_path / "lake")
    lake.create()
    writer = Writer(lake)
    made: list[Collector] = [FakeBroker(own_nats_server)]
    made += factory("nats")(chosen.brokers[0], Context(chosen, writer, SelfMetrics(), Board()))
    yield next(one for one in made if one.name.startswith(request.param))
    writer.close()


async def test_it_opens_steps_and_closes_again_and_again(collector: Collector) -> None:
    for _ in range(2):
        await collector.open()
        await collector.step()
        await collector.step()
        await collector.close()
    await collector.close()


async def test_a_broker_that_goes_away_is_a_lost_connection_and_comes_back(
    collector: Collector, own_nats_server: NatsServer
) -> None:
    await collector.open()
    await collector.step()
    own_nats_server.kill()
    with pytest.raises(ConnectionLost):
        for _ in range(20):
            await collector.step()
            await asyncio.sleep(0.05)
    with pytest.raises(ConnectionLost):
        await collector.open()
    own_nats_server.start()
    await collector.open()
    await collector.step()
    await collector.close()


async def test_it_closes_without_complaint_when_the_broker_is_gone(
    collector: Collector, own_nats_server: NatsServer
) -> None:
    await collector.open()
    own_nats_server.kill()
    with suppress(ConnectionLost):
        await collector.step()
    await collector.close()


def test_every_kind_of_broker_can_be_imported() -> None:
    assert callable(factory("nats")) and "nats" in KINDS
    with pytest.raises(UserError, match="no collector for brokers of kind"):
        factory("pigeon")
