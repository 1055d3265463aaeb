"""Dramatiq's three queues on a real node: what waits, what is not due, what is dead."""

from __future__ import annotations

import pytest

from tests.collectors.rabbitmq.conftest import Make
from tests.collectors.rabbitmq.reading import opened, read_until
from tests.support.dramatiq import send, worker
from tests.support.facts import proves
from tests.support.rabbitmq import RabbitServer


@pytest.mark.parametrize("api", ["management", "prometheus"])
@proves("dramatiq", "cluster shapes", "on RabbitMQ, too: .DQ as delayed, .XQ as dead letters")
async def test_what_is_not_due_is_delayed_and_dead_letters_serve_their_queue(
    rabbit: RabbitServer, broker: Make, api: str
) -> None:
    url = f"amqp://{rabbit.user}:{rabbit.password}@127.0.0.1:{rabbit.port}"
    queue = f"dramatiq-{api}"
    work = {"actor": "work", "args": ["acme", 600], "queue": queue}
    with worker(url, queue):
        send(url, {"actor": "doomed", "queue": queue}, *([work] * 4), work | {"delay": 900_000})
        async with opened(broker(api=api)) as source:
            found = await read_until(
                source, lambda found: found[f"{queue}.XQ"].depth == 1 and found[queue].in_flight == 4
            )
    later, dead = found[f"{queue}.DQ"], found[f"{queue}.XQ"]
    assert (found[queue].depth, found[queue].delayed) == (0, None)
    assert (later.depth, later.in_flight, later.delayed, later.oldest_age_seconds) == (0, 0, 1, 0.0)
    assert dead.dead_letter_for is not None and queue in dead.dead_letter_for
