"""The watchdog calls back what takes too long, and nothing else."""

from __future__ import annotations

import threading

import pytest

from lake.watchdog import Watchdog
from tests.support.waiting import PATIENCE


def test_what_takes_too_long_is_called_back_and_what_ends_in_time_is_not() -> None:
    dog, barked, wrongly = Watchdog(), threading.Event(), threading.Event()
    with dog.within(3600, wrongly.set):
        with dog.within(3600, wrongly.set):
            pass
        with dog.within(0.01, barked.set):  # though the thread sleeps for an hour by now
            assert barked.wait(10 * PATIENCE)
    again = threading.Event()
    with dog.within(0.01, again.set):
        assert again.wait(10 * PATIENCE)
    assert not wrongly.is_set()


def test_an_error_in_the_block_ends_its_watch() -> None:
    dog, called = Watchdog(), threading.Event()
    with pytest.raises(ValueError, match="mine"), dog.within(0.05, called.set):
        raise ValueError("mine")
    assert not called.wait(0.2)
