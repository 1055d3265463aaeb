"""An order of messages, followed step by step beside plain queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from sojourn import FairOrder
from sojourn.client.grouped import GroupedOrder

Steps = list[tuple[str, object]]


def follow(order: FairOrder[int] | GroupedOrder[int], steps: Steps, wait: Callable[[float], None]) -> None:
    """Take ``steps``: nothing is lost, each tenant's own order is kept, and as long as one waits there is one to take.

    ``wait`` is called with the seconds of steps that let time pass.
    """
    waiting: dict[str, list[int]] = defaultdict(list)
    working: list[str] = []
    for number, (step, given) in enumerate(steps):
        if step == "put":
            order.put(str(given), number)
            waiting[str(given)].append(number)
        elif step == "wait":
            wait(float(given))  # type: ignore[arg-type]
        elif step == "take" and len(order):
            tenant, item = order.take()
            assert item == waiting[tenant].pop(0)
            working.append(tenant)
        elif step == "done" and working:
            order.done(working.pop(0), float(given))  # type: ignore[arg-type]
        assert len(order) == sum(map(len, waiting.values()))
        assert all(order.waiting(tenant) == len(items) for tenant, items in waiting.items())
    while len(order):
        tenant, item = order.take()
        assert item == waiting[tenant].pop(0)
    assert not any(waiting.values())
    with pytest.raises(IndexError):
        order.take()
