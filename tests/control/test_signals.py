"""What nobody would wish for: an alert that comes and goes, producers that ignore limits, an API that is slow."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import sojourn
from tests.control.conftest import POLICY
from tests.support.deep import examples
from tests.support.waiting import wait_until

Start = Callable[..., Any]


#: Seconds that it stays and is away: what is never seen twice in a row, what is at once, and in a deep run slower ones.
@pytest.mark.parametrize("every", [2, 1, 3, 7][: examples(1, 4)])
def test_an_alert_that_comes_and_goes_changes_a_limit_no_faster_than_its_cooldown(start: Start, every: int) -> None:
    loop, seconds = start(max_step=0.5), 120
    for second in range(seconds):
        loop.world.advance(1)
        loop.step(*(["t0"] if second // every % 2 == 0 else []))
        loop.trace.append(loop.served().get("t0"))
    rates = [rate for rate in loop.trace if rate is not None]
    changes = [(before, after) for before, after in itertools.pairwise(rates) if before != after]
    assert bool(rates) == (every > 1), "what is never seen twice in a row limits nobody"
    assert len(changes) <= seconds / POLICY["cooldown_seconds"] + 1
    assert all(0.5 * before - 1e-6 <= after <= 1.5 * before + 15 + 1e-6 for before, after in changes)
    assert len({row["action_id"] for row in loop.journal() if row["outcome"] == "applied"}) <= 1, "one action, not many"
    loop.world.calm()
    for _ in range(60):
        loop.world.advance(1)
        loop.step()
    assert loop.served() == {}, "it ends once the signal is quiet"


@pytest.mark.deep  # in tests/control/test_ignoring.py on a real broker
def test_a_twentieth_of_the_producers_that_ignore_a_limit_neither_void_it_nor_drive_it_down(start: Start) -> None:
    loop, asks = start(floor=2.0), 120
    loop.throttle("t0")
    for _ in range(120):
        limit = loop.served().get("t0", asks)
        loop.world.noisy_rate = round(0.95 * min(limit, asks) + 0.05 * asks)
        loop.world.backlog = max(4, loop.world.backlog - 20)  # 6/s too many and all others obey: it drains
        loop.world.quiet_age = 12.0 * loop.world.backlog / 520
        loop.world.mode = "backlogged" if loop.world.quiet_age > 10 else "fast"
        loop.run(1, "t0")
    limits = [rate for rate in loop.trace if rate is not None]
    assert not [row for row in loop.journal() if "no effect" in row["reason"]]
    assert min(limits) > 2.0, "those who obey do not pay for the others down to the floor"
    assert "release" in loop.decisions() and "expire" not in loop.decisions(), "it ends by decision, once all is calm"


@pytest.fixture
def slow() -> Iterator[int]:
    """A server that takes a question, begins its answer and sends a byte of it each tenth of a second."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
            while not over.wait(0.1):
                connection.sendall(b" ")

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=[listener.accept()[0]], daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    over.set()
    listener.close()


def test_a_limits_api_that_is_slow_holds_up_no_message(slow: int) -> None:
    with sojourn.Limits(f"http://127.0.0.1:{slow}") as limits:
        wait_until(lambda: limits.counters()["polls"] > 0, "the question")
        assert all(limits.acquire("orders", "acme") for _ in range(1000))
        assert limits.in_force() == {} and limits.counters()["polls"] == 1, "decided here, while it still answers"
