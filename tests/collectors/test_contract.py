"""What every collector promises, over each kind's real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from brokers.errors import ConnectionLost
from collectors.base import Collector
from collectors.board import Board
from collectors.context import Context
from collectors.registry import KINDS, factory
from collectors.sampler import Sampler
from collectors.samples import METRIC_NAMES, Sample
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from collectors.writer import Writer
from lake.errors import UserError
from lake.store import Lake
from sojourn.found import PROBES
from sojourn.knowledge import COLUMNS, knowledge, read_once
from tests.collectors.places import ENVIRONMENT, PLACES, Place
from tests.support import facts
from tests.support.waiting import wait_until

#: May be null without a reason: set on dead-letter queues alone.
OPTIONAL = {"dead_letter_for"}


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One kind's server for all tests of this file; the last of them kills it."""
    made = PLACES[request.param](tmp_path_factory.mktemp(request.param))
    yield made
    made.server.stop()


@pytest.fixture
def chosen(place: Place, monkeypatch: pytest.MonkeyPatch) -> CollectSettings:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return CollectSettings.model_validate({"brokers": [{"name": "mq", **place.broker}], "sample_interval": 0.2})


@pytest.fixture
async def context(chosen: CollectSettings, tmp_path: Path) -> AsyncIterator[Context]:
    lake = Lake(tmp_path / "lake")
    lake.create()
    writer = Writer(lake)
    yield Context(chosen, writer, SelfMetrics(), Board())
    writer.close()


@pytest.fixture
def sampler(chosen: CollectSettings, context: Context) -> Sampler:
    made = factory(chosen.brokers[0].kind)(chosen.brokers[0], context)
    (sampler,) = [one for one in made if isinstance(one, Sampler)]
    return sampler


async def read_until_told(sampler: Sampler, place: Place) -> list[Sample]:
    """Samples of a cycle in which every queue's known numbers are there: brokers' statistics take a moment."""
    for _ in range(60):
        samples = list(await sampler.source.read())
        found = {(sample.queue, sample.subscriber): sample for sample in samples}
        if all(
            key in found and all(getattr(found[key], name) == value for name, value in values.items())
            for key, values in place.told.items()
        ):
            return samples
        await asyncio.sleep(0.2)
    raise AssertionError(f"{place.told} is not told by {samples}")


def test_it_is_read_at_an_interval_of_its_own_where_one_is_set(chosen: CollectSettings, context: Context) -> None:
    broker = chosen.brokers[0].model_copy(update={"sample_interval": 7.0})
    (sampler,) = [one for one in factory(broker.kind)(broker, context) if isinstance(one, Sampler)]
    assert sampler.interval == 7.0


async def test_it_opens_steps_and_closes_again_and_again(sampler: Collector) -> None:
    for _ in range(2):
        await sampler.open()
        await sampler.step()
        await sampler.step()
        await sampler.close()
    await sampler.close()


async def test_it_tells_what_the_queues_hold(sampler: Sampler, place: Place) -> None:
    await sampler.open()
    await read_until_told(sampler, place)
    await sampler.close()


async def test_every_null_has_its_reason_and_nothing_is_below_zero(sampler: Sampler, place: Place) -> None:
    await sampler.open()
    samples = await read_until_told(sampler, place)
    await sampler.close()
    for sample in samples:
        for name in METRIC_NAMES:
            value, reason = getattr(sample, name), sample.unavailable.get(name)
            assert value is not None or reason or name in OPTIONAL, f"{name} of {sample.queue} is null without a reason"
            told = value is None or (name == "unknown_partitions" and value > 0)
            assert told == bool(reason) or name in OPTIONAL, f"{name} of {sample.queue} is {value}: {reason}"
            assert not isinstance(value, (int, float)) or value >= 0, f"{name} of {sample.queue} is {value}"
        assert set(sample.unavailable) <= {*METRIC_NAMES, "tenants"}


async def test_what_is_known_of_each_kind_is_what_the_table_says(
    sampler: Sampler, place: Place, request: pytest.FixtureRequest, note: facts.Note
) -> None:
    await sampler.open()
    samples = {(sample.queue, sample.subscriber): sample for sample in await read_until_told(sampler, place)}
    await sampler.close()
    kinds = place.rows or {request.node.callspec.params["place"]: set(place.told)}
    assert set().union(*kinds.values()) == set(place.told)
    for kind, keys in kinds.items():
        note(*facts.measured(kind, [samples[key] for key in place.told if key in keys]))


async def test_what_it_reads_is_in_the_lake_and_on_the_board(
    sampler: Sampler, place: Place, context: Context, tmp_path: Path
) -> None:
    await sampler.open()
    await read_until_told(sampler, place)
    await sampler.step()
    ((broker, shown),) = context.board.newest()
    assert broker == "mq" and {(one.queue, one.subscriber) for one in shown} >= set(place.told)
    rows = Lake(tmp_path / "lake").read("queue_samples").to_pylist()
    assert {(row["queue"], row["subscriber"]) for row in rows} == {(one.queue, one.subscriber) for one in shown}
    assert {row["source"] for row in rows} == {sampler.name}
    await sampler.close()
    assert context.board.newest() == []


def test_init_knows_its_server_and_doctor_what_it_will_tell(chosen: CollectSettings, place: Place) -> None:
    (broker,) = chosen.brokers
    if broker.kind in PROBES:  # a page of metrics may be anybody's
        _, knows = PROBES[broker.kind]
        assert knows(broker.addresses()[0])

    def told() -> bool:
        return "depth" in knowledge(read_once(chosen, broker)).known

    wait_until(told, "a depth to be known")
    found = knowledge(read_once(chosen, broker))
    assert {*found.known, *found.unknown} == {*COLUMNS, "tenants"}
    assert all(found.unknown.values())


async def test_several_cycles_at_one_time_of_several_brokers_do_not_wait_for_each_other(
    sampler: Sampler, chosen: CollectSettings, context: Context, place: Place
) -> None:
    others = [one for one in factory(chosen.brokers[0].kind)(chosen.brokers[0], context) if isinstance(one, Sampler)]
    for one in (sampler, *others):
        await one.open()
    await asyncio.gather(*(one.step() for one in (sampler, *others)))
    for one in (sampler, *others):
        await one.close()


def test_its_settings_show_no_secret(chosen: CollectSettings) -> None:
    for secret in ENVIRONMENT.values():
        if len(secret) > 5:
            assert secret not in repr(chosen) and secret not in chosen.model_dump_json()


async def test_a_broker_that_goes_away_is_a_lost_connection_and_comes_back(
    sampler: Sampler, place: Place, context: Context
) -> None:
    await sampler.open()
    await sampler.step()
    place.server.kill()
    with pytest.raises(ConnectionLost):
        for _ in range(20):
            await sampler.step()
            await asyncio.sleep(0.05)
    assert context.board.newest() == [], "numbers that nobody reads any more"
    with pytest.raises(ConnectionLost):
        await sampler.open()
        await sampler.step()
    await sampler.close()  # without complaint
    place.server.start()
    await _reopened(sampler)
    if place.outlasts:
        await read_until_told(sampler, place)
    else:
        await sampler.step()
    await sampler.close()


async def _reopened(sampler: Sampler) -> None:
    """Open it as its keeper does: again and again."""
    for _ in range(50):
        with suppress(ConnectionLost):
            await sampler.open()
            await sampler.step()
            return
        await asyncio.sleep(0.2)
    raise AssertionError("it does not come back")


def test_every_kind_of_broker_has_its_place_in_this_suite() -> None:
    assert set(KINDS) <= set(PLACES) <= {*facts.KINDS, "prometheus"}
    assert all(callable(factory(kind)) for kind in KINDS)
    with pytest.raises(UserError, match="no collector for brokers of kind"):
        factory("pigeon")
