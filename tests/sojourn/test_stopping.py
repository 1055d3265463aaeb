"""What a signal does to a command that waits."""

from __future__ import annotations

import signal

import pytest

from sojourn.cli.options import stopping


def test_a_signal_that_comes_while_the_wait_holds_its_lock_is_heard() -> None:
    with stopping() as stop:
        with stop._cond:  # as on the way into a wait, and out of one
            signal.raise_signal(signal.SIGTERM)
        assert stop.wait(60)


def test_a_second_signal_interrupts_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert stop.wait(60)
    assert signal.getsignal(signal.SIGTERM) is before
