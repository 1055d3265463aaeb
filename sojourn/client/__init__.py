"""The small library that applications embed: it tells what happens to messages, and obeys the limits that are set.

Two lines each::

    recorder = sojourn.Recorder("http://127.0.0.1:4318", broker="rabbitmq")
    recorder.received("orders", message_id, tenant=tenant, attempt=1)  # appends a tuple; a thread does the rest

    limits = sojourn.Limits("http://127.0.0.1:9095")
    limits.acquire("orders", tenant)  # before each send: returns at once, unless this tenant is limited now

Neither ever stands in the application's way: the recorder is bounded and summarises what it cannot send in time, the
limits fail open.
"""

from __future__ import annotations

from sojourn.client.attempt import Attempt, DeadlineExceeded
from sojourn.client.bucket import Decision
from sojourn.client.codel import CoDel
from sojourn.client.fair import FairOrder
from sojourn.client.fair_consumer import FairConsumer, FairStats
from sojourn.client.limits import Limits
from sojourn.client.polls import Poll
from sojourn.client.publishes import Publishing
from sojourn.client.recorder import Recorder, Stats
from sojourn.client.shuffle_sharding import ShuffleShards

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
    "Publishing",
    "Recorder",
    "ShuffleShards",
    "Stats",
]
