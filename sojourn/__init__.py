"""Sojourn: what messages live through in asynchronous queues, and backpressure that follows from it.

Applications embed the client, which needs the standard library alone::

    import sojourn
    recorder = sojourn.Recorder("http://127.0.0.1:4318", broker="rabbitmq")
    limits = sojourn.Limits("http://127.0.0.1:9095")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sojourn.client import (
        Attempt,
        CoDel,
        DeadlineExceeded,
        Decision,
        FairConsumer,
        FairOrder,
        FairStats,
        Limits,
        Poll,
        Recorder,
        ShuffleShards,
        Stats,
    )

__all__ = [
    "Attempt",
    "CoDel",
    "DeadlineExceeded",
    "Decision",
    "FairConsumer",
    "FairOrder",
    "FairStats",
    "Limits",
    "Poll",
    "Recorder",
    "ShuffleShards",
    "Stats",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from sojourn import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
