"""Recorded answers of a real server → the samples that they mean."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from collectors.redis.layouts import chosen
from collectors.redis.settings import RedisBroker
from collectors.samples import METRIC_NAMES, Sample
from tests.collectors.redis.reading import named
from tests.collectors.redis.recorded_answers import Recorded, expected

LAYOUTS = {"dyno": {"prefix": "app"}, "streams": {}, "celery": {}, "rq": {}}


def told(sample: Sample) -> dict[str, Any]:
    """The metrics that are known, ages to the microsecond."""
    known = {name: value for name, value in asdict(sample).items() if name in METRIC_NAMES and value is not None}
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in known.items()}


@pytest.mark.parametrize("name", LAYOUTS)
def test_recorded_answers_mean_these_samples(name: str) -> None:
    (layout,) = chosen(RedisBroker.model_validate({name: LAYOUTS[name]})).values()
    recorded = Recorded(name)
    found = named(recorded.samples(layout))
    assert all(sample.sampled_at == recorded.now for sample in found.values())
    keyed = {
        queue if subscriber is None else f"{queue}/{subscriber}": one for (queue, subscriber), one in found.items()
    }
    assert {key: told(sample) for key, sample in keyed.items()} == expected(name)


def test_a_message_that_cannot_be_read_makes_its_queues_flight_unknown() -> None:
    recorded = Recorded("celery")
    recorded._answers[(b"HVALS", b"unacked")] = [b"not JSON"]
    (layout,) = chosen(RedisBroker.model_validate({"celery": {}})).values()
    found = named(recorded.samples(layout))["celery", None]
    assert (found.depth, found.in_flight, found.delayed) == (4, None, None)


def test_a_server_before_streams_told_their_lag_leaves_it_unknown() -> None:
    recorded = Recorded("streams")
    answer = recorded._answers[(b"XINFO", b"GROUPS", b"events")]
    old = [group[: group.index(b"entries-read")] for group in answer]
    recorded._answers[(b"XINFO", b"GROUPS", b"events")] = old
    (layout,) = chosen(RedisBroker.model_validate({"streams": {"keys": ["events"]}})).values()
    found = named(recorded.samples(layout))["events", "billing"]
    assert (found.depth, found.in_flight, found.delivered_total) == (None, 2, None)
    assert "7.0" in found.unavailable["depth"]
