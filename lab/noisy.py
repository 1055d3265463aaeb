"""Which tenants of the simulated queue are noisy: the view's definition, over the lab's accounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lab.queue import Account
from lake.noisy import NOISY, QUIET, Array, judged


def shares(accounts: Iterable[Account], worked: Array, now: float) -> dict[str, Any]:
    """Each tenant beside its whole queue, in the order of ``accounts``, as the rule asks for them.

    ``worked`` is each tenant's processing time over the window, ``now`` in seconds.
    """
    of = list(accounts)
    backlog = np.array([account.backlog for account in of])
    in_flight = np.array([account.in_flight for account in of])
    ready = np.array([account.ready for account in of])
    return {
        "backlog": backlog,
        "in_flight": in_flight,
        "ready": ready,
        "queue_in_flight": in_flight.sum(),
        "queue_ready": ready.sum(),
        "active_tenants": (backlog > 0).sum(),
        "window_processing_sum": worked,
        "queue_processing_sum": worked.sum(),
        "at_second": int(now),
        "last_arrival_second": np.floor([account.last_arrival for account in of]),
    }


def noisy_ones(before: Array, accounts: Iterable[Account], worked: Array, now: float) -> Array:
    """Whether each tenant is noisy at ``now``; who is neither noisy nor quiet by now is as ``before``."""
    verdicts, _ = judged(shares(accounts, worked, now))
    noisy: Array = (verdicts == NOISY) | (before & (verdicts != QUIET))
    return noisy
