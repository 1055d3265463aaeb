"""The layouts in which libraries keep queues in Redis, one module each."""

from __future__ import annotations

from collectors.redis.layouts.base import Layout
from collectors.redis.layouts.celery import Celery
from collectors.redis.layouts.dyno import Dyno
from collectors.redis.layouts.rq import Rq
from collectors.redis.layouts.streams import Streams
from collectors.redis.settings import CeleryLayout, DynoLayout, RedisBroker, RqLayout, StreamLayout


def chosen(broker: RedisBroker) -> dict[str, Layout]:
    """Name of a layout → the layout, for those that ``broker`` configures; all of them where it configures none."""
    layouts: dict[str, Layout | None] = {
        "dyno": Dyno(broker.dyno) if broker.dyno else None,
        "streams": Streams(broker.streams) if broker.streams else None,
        "celery": Celery(broker.celery) if broker.celery else None,
        "rq": Rq(broker.rq) if broker.rq else None,
    }
    some = {name: layout for name, layout in layouts.items() if layout is not None}
    return some or {
        "dyno": Dyno(DynoLayout()),
        "streams": Streams(StreamLayout()),
        "celery": Celery(CeleryLayout()),
        "rq": Rq(RqLayout()),
    }
