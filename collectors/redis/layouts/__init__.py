"""The layouts in which libraries keep queues in Redis, one module each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectors.redis.layouts.base import Layout
from collectors.redis.layouts.bullmq import Bullmq
from collectors.redis.layouts.celery import Celery
from collectors.redis.layouts.dramatiq import Dramatiq
from collectors.redis.layouts.dyno import Dyno
from collectors.redis.layouts.resque import Resque
from collectors.redis.layouts.rq import Rq
from collectors.redis.layouts.sidekiq import Sidekiq
from collectors.redis.layouts.streams import Streams
from collectors.redis.settings import RedisBroker

#: Name of a layout → what makes it of its settings (:data:`collectors.redis.settings.LAYOUTS`).
MADE_BY: dict[str, Callable[[Any], Layout]] = {
    "dyno": Dyno,
    "streams": Streams,
    "celery": Celery,
    "rq": Rq,
    "sidekiq": Sidekiq,
    "bullmq": Bullmq,
    "dramatiq": Dramatiq,
    "resque": Resque,
}


def chosen(broker: RedisBroker) -> dict[str, Layout]:
    """Name of a layout → the layout, for those that ``broker`` configures; all of them where it configures none."""
    return {name: MADE_BY[name](settings) for name, settings in broker.layouts().items()}
