"""What goes on as ever waits for up to a second; what is out of the ordinary, and what is trouble, is told at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
