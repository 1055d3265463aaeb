"""Spans of sampled traces stand for as many as their sampler let go, and are marked as estimates."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from collectors.receive.sampled import ESTIMATED, weight
from tests.collectors.receive.support import receiving, request_of
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize(
    ("tracestate", "expected"),
    [
        ("", 1),
        ("ot=th:0", 1),
        ("ot=th:8", 2),
        ("ot=th:c", 4),
        ("rojo=1, ot=rv:abcdef12345678;th:f,congo=2", 16),
        ("ot=th:ffffffffffffff", 1_000_000),  # one of 2⁵⁶: bounded
        ("ot=th:", 1),
        ("ot=th:8g", 1),
        ("ot=th:000000000000001", 1),  # more digits than there are
        ("xot=th:8", 1),
    ],
)
def test_the_weight_is_what_the_threshold_says(tracestate: str, expected: int) -> None:
    assert weight(tracestate.encode(), b"\1" * 16) == expected


def test_weights_that_are_no_whole_numbers_are_right_on_average() -> None:
    chance = random.Random(1)
    weights = [weight(b"ot=th:b3333333333333", chance.randbytes(16)) for _ in range(20_000)]  # 30 %
    assert set(weights) == {3, 4}
    assert abs(sum(weights) / len(weights) - 1 / 0.3) < 0.02


def _sampled(request: Any, tracestate: str) -> bytes:
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.trace_state = tracestate
    body: bytes = request.SerializeToString()
    return body


def test_counts_of_a_sampled_trace_are_weighted_and_told_as_estimates(tmp_path: Path) -> None:
    tenant = {"sojourn__tenant": "acme"}
    whole = request_of(("send", 1, tenant), ("process", 2, {"parent": 1, "remote": True, "at": 500}))
    alone = request_of(("send", 5, {"trace": 2}))
    with receiving(tmp_path / "lake") as receiver:
        for body in (_sampled(whole, "ot=th:c"), _sampled(whole, "ot=th:c"), alone.SerializeToString()):
            headers = {"content-type": "application/x-protobuf"}
            taken = httpx.post(f"{receiver.url}/v1/traces", content=body, headers=headers, timeout=10 * PATIENCE)
            assert taken.status_code == 200
        events, rows = receiver.rows(), receiver.rows("event_summaries")
        reports = receiver.rows("queue_samples")
    assert [row["event_type"] for row in events] == ["enqueued"]  # what was not sampled is one event, as ever
    assert {(row["source"], row["broker"], row["queue"], row["tenant"]) for row in rows} == {
        (ESTIMATED, "nats", "orders", "acme")
    }
    # Twice sent, once told: three events of the sampled trace, each for four.
    assert [(row["queue"], row["estimated"], row["source"]) for row in reports] == [("orders", 12, ESTIMATED)]
    total = {name: sum(row[name] for row in rows) for name in ("enqueued", "received", "completed", "started")}
    assert total == dict.fromkeys(total, 4)
    assert sum(cell["net"] for row in rows for cell in row["backlog_cells"] or ()) == 0
    ages = [bucket["count"] for row in rows for bucket in row["first_attempt_age_histogram"] or ()]
    assert ages == [4]
    assert max(row["first_attempt_age_max"] or 0 for row in rows) == pytest.approx(0.5)
