"""When what a tap holds is committed: much at once, a few together, and the first after a while without delay."""

from __future__ import annotations

import pytest

from collectors import commits
from collectors.commits import PATIENCE_INTERVALS, WORTH_A_COMMIT, Commits

INTERVAL, ROOM = 0.2, 100_000


class Clock:
    """What `time.monotonic` says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(commits, "time", made)
    return made


async def committed() -> Commits[list[int]]:
    """Commits of which one has just begun."""

    async def write(_: list[int]) -> None:
        pass

    held = Commits(lambda: [1], write, lambda _: None)
    await held.flush()
    return held


async def test_the_first_after_a_while_is_not_kept_waiting(clock: Clock) -> None:
    held = await committed()
    clock.now += 60.0
    assert held.due(1, ROOM, INTERVAL)


async def test_a_few_wait_for_others_but_not_for_ever(clock: Clock) -> None:
    held = await committed()
    clock.now += INTERVAL
    assert not held.due(WORTH_A_COMMIT - 1, ROOM, INTERVAL)
    clock.now += INTERVAL * (PATIENCE_INTERVALS - 1)
    assert held.due(1, ROOM, INTERVAL)


async def test_many_wait_for_nobody(clock: Clock) -> None:
    held = await committed()
    clock.now += INTERVAL
    assert held.due(WORTH_A_COMMIT, ROOM, INTERVAL)


async def test_who_has_no_room_for_more_waits_for_nobody(clock: Clock) -> None:
    """What is held beyond it would be rolled up."""
    held = await committed()
    assert held.due(20, 40, INTERVAL)
    assert not held.due(19, 40, INTERVAL)


async def test_a_look_that_finds_nothing_to_commit_keeps_nobody_waiting(clock: Clock) -> None:
    async def write(_: list[int]) -> None:
        raise AssertionError("nothing was sealed")

    held: Commits[list[int]] = Commits(lambda: None, write, lambda _: None)
    clock.now += 60.0
    await held.flush()
    assert held.due(1, ROOM, INTERVAL)
