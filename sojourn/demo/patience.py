"""What the demo waits for before there are metrics."""

from __future__ import annotations

from pathlib import Path

from lake.tables import MESSAGE_EVENTS, PARTIALS
from sojourn.demo.freshness import newest_version


def missing(lake: Path) -> str:
    """What has to come next before there are metrics in the ``lake``, in the order of its coming."""
    if newest_version(lake / MESSAGE_EVENTS.path / "_delta_log") < 1:
        return "the collector's first events"
    if not any((lake / "state" / "checkpoints" / "analyze").glob("*/metadata")):
        return "Spark to start"
    if newest_version(lake / PARTIALS.path / "_delta_log") < 1:
        return "Spark's first batch"
    return "new metrics"
