"""What goes on as ever waits for up to two seconds; what is out of the ordinary, or trouble, is told at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.tables import EVENT_TYPES
from spark_analytics.state.calm import CALM_SECONDS, LONGEST_SECONDS, MOST_RECORDS, Calm, waits
from spark_analytics.state.writer import Writer
from tests.reference.replaying import Committed
from tests.spark_analytics.events import event


def told(rate: float, batches: int, seed: int) -> tuple[Calm, list[bool]]:
    """Batches of a system in which about ``rate`` records a second come at random."""
    chance, usual = np.random.default_rng(seed), []
    calm, now = Calm(), 0.0
    for apart in chance.uniform(0.3, 0.8, batches).tolist():
        now += apart
        usual.append(calm.brought(int(chance.poisson(rate * apart)), now + chance.uniform(0, 0.2)))  # a moment later
    return calm, usual


def last(calm: Calm) -> float:
    """When the last batch came."""
    return calm._last[-1][0]


@pytest.mark.parametrize("rate", [0.5, 5.0, 130.0, 300.0])
def test_what_comes_at_random_is_nearly_always_as_usual(rate: float) -> None:
    usual = [each for seed in range(20) for each in told(rate, 60, seed)[1][2:]]
    assert sum(usual) >= 0.98 * len(usual)


@given(rate=st.floats(20, 300), seed=st.integers(0, 1000))
def test_a_surge_and_a_standstill_are_not_as_usual(rate: float, seed: int) -> None:
    calm, _ = told(rate, 60, seed)
    assert not calm.brought(round(2 * rate) + 30, last(calm) + 0.5), "four times as much"
    calm, _ = told(rate, 60, seed)
    assert not calm.brought(0, last(calm) + 1.5), "nothing at all"


def test_a_surge_that_lasts_is_what_is_usual_in_the_end() -> None:
    calm, _ = told(20.0, 60, 1)
    usual = [calm.brought(50, last(calm) + 0.5) for _ in range(200)]
    assert not usual[0] and all(usual[-20:])


def test_what_had_piled_up_before_a_start_is_soon_forgotten() -> None:
    calm = Calm()
    for number, records in enumerate((30_000, 8_000, 5_000)):
        assert not calm.brought(records, 0.1 * number)
    usual = [calm.brought(165, 0.2 + 0.55 * number) for number in range(1, 40)]
    assert all(usual[20:])


def test_much_never_waits() -> None:
    calm = Calm()
    assert not any(calm.brought(round(MOST_RECORDS), 0.5 * number) for number in range(200))


APART = 0.54


class Tenants:
    """A calm system, batch by batch: what of its tenants comes at random, and whether that may wait."""

    def __init__(self, rates: dict[str, float], seed: int, batches: int = 100) -> None:
        self.rates, self._chance = rates, np.random.default_rng(seed)
        self._calm, self._now = Calm(), 0.0
        self.usual = [self.batch() for _ in range(batches)]

    def batch(self, **more: float) -> bool:
        """The next batch, with what tenants send ``more`` (events/s); whether it is as usual. Consumers keep up with
        the tenants of old alone."""
        self._now += APART
        names = [*self.rates, *(more.keys() - self.rates.keys())]
        calm = [self.rates.get(name, 0.0) * APART for name in names]
        sent = [mean + more.get(name, 0.0) * APART for name, mean in zip(names, calm, strict=True)]
        counts = {kind: [0] * len(names) for kind in EVENT_TYPES} | {
            kind: self._chance.poisson(mean).tolist()
            for kind, mean in {"enqueued": sent, "received": calm, "completed": calm}.items()
        }
        of = {"broker": ["nats"] * len(names), "queue": ["orders"] * len(names), "tenant": names}
        self._calm.comes(pa.table(of | counts), self._now)
        return self._calm.brought(sum(map(sum, counts.values())), self._now)


@pytest.mark.parametrize(("rate", "count"), [(10.0, 8), (0.2, 200), (60.0, 2)])
def test_tenants_that_send_at_random_are_nearly_always_as_usual(rate: float, count: int) -> None:
    of = {f"t{number}": rate for number in range(count)}
    usual = [each for seed in range(20) for each in Tenants(of, seed).usual[60:]]
    assert sum(usual) >= 0.98 * len(usual)


@given(rate=st.floats(0, 20), others=st.integers(1, 10), seed=st.integers(0, 1000))
def test_the_first_batch_of_a_tenants_flood_is_told_at_once(rate: float, others: int, seed: int) -> None:
    """However little it sent before, and whatever others send: all together are often within chance of the usual."""
    tenants = Tenants({f"t{number}": 10.0 for number in range(others)} | {"flood": rate}, seed, batches=60)
    calm = tenants.batch(flood=120.0)
    assert all(waits(since, calm=calm) == 0.0 for since in (0.0, APART, CALM_SECONDS, LONGEST_SECONDS))
    fails = Tenants({f"t{number}": 10.0 for number in range(others)}, seed, batches=60)
    assert not fails.batch(another=40.0), "of a tenant that nobody had heard of"


def test_a_flood_that_lasts_is_what_is_usual_in_the_end() -> None:
    tenants = Tenants({"t0": 10.0, "t1": 10.0}, 7)
    usual = [tenants.batch(t1=50.0) for _ in range(200)]
    assert not any(usual[:5]) and all(usual[-20:])


def test_a_step_waits_for_the_first_batch_of_its_turn_and_no_longer_than_that_may_take() -> None:
    assert waits(0.5, calm=True) == pytest.approx(LONGEST_SECONDS - 0.5)
    assert waits(CALM_SECONDS, calm=True) == waits(60.0, calm=True) == 0.0
    assert waits(0.0, calm=False) == 0.0


def test_a_backlogged_queue_is_pressing_and_one_that_keeps_up_is_not(tmp_path: Path) -> None:
    log, writer = Committed(tmp_path), Writer(tmp_path)
    assert writer.pressing, "nothing is known yet"
    for at in range(5):
        log.append(
            [event(kind, at, enqueued=at, message_id=f"m{at}") for kind in ("enqueued", "received", "completed")]
        )
        writer.step()
    assert not writer.pressing
    log.append([event("enqueued", 6, enqueued=6, message_id="late")])
    writer.step()
    log.append([event("enqueued", 300, enqueued=300, message_id="later")])
    writer.step()
    assert writer.pressing
    writer.close()
