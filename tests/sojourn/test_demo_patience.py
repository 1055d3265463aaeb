"""The demo does not give up: it says what it waits for."""

from __future__ import annotations

import json

from lake.store import Lake
from sojourn.demo.patience import missing
from sojourn.supervise.patience import Patience
from tests.spark_analytics.events import bronze


def test_what_is_waited_for_is_said_each_fifteen_seconds() -> None:
    said: list[str] = []
    clock = iter([0.0, 1.0, 14.9, 15.0, 16.0, 31.0])
    patience = Patience(said.append, lambda: next(clock))
    for what in ("a", "b", "c", "d", "e"):
        patience.tell(lambda what=what: what)  # type: ignore[misc]
    assert said == ["still waiting for c (15 s)", "still waiting for e (31 s)"]


def test_what_is_missing_comes_in_its_order(lake: Lake) -> None:
    lake.create()
    assert missing(lake.root) == "the collector's first events"
    lake.append("message_events", bronze([]), app_id="tap", version=1)
    assert missing(lake.root) == "Spark to start"
    lake.state_path("checkpoints", "analyze", "events", "metadata").write_text(json.dumps({"id": "x"}))
    assert missing(lake.root) == "Spark's first batch"
