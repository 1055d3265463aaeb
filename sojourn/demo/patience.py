"""What the demo waits for before there are metrics."""

from __future__ import annotations

from pathlib import Path

from lake.store import Lake
from sojourn.demo.freshness import newest_version


def missing(lake: Path) -> str:
    """What has to come next before there are metrics in the ``lake``, in the order of its coming."""
    store = Lake(lake)
    if newest_version(store.path("message_events") / "_delta_log") < 1:
        return "the collector's first events"
    if not any((lake / "state" / "checkpoints" / "analyze").glob("*/metadata")):
        return "Spark to start"
    if newest_version(store.path("partials") / "_delta_log") < 1:
        return "Spark's first batch"
    return "new metrics"
