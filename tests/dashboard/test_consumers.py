"""The consumers' page: who is judged, what they hold, and how many messages they should fetch ahead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.services.consumers import advice
from tests.dashboard.test_pages import AGES, heading, opened, words


def test_consumers_that_a_rule_finds_fault_with_come_first(troubled: Path, show: Callable[..., None]) -> None:
    show(troubled, stale_after_seconds=AGES)
    app = opened("consumers")
    said = words(app)
    assert heading(app) == "Look at the consumers of invoices"
    assert re.search(
        r"invoices ▲ LeakedInFlight 4 [\d.]+ · \d+ 4 % of 160 15 % \d+ % .* \(\d % of 30 s\) 250 → 2", said
    )
    assert said.index("invoices ▲") < said.index("orders ✓ no fault found")
    assert "invoices.dlq" not in said  # nobody consumes it by itself
    assert "<img" in " ".join(element.proto.body for element in app.get("html"))
    other = words(opened("consumers", find="EMAIL", round="100"))
    assert "emails ✓" in other and "orders ✓" not in other


@pytest.mark.parametrize(
    ("current", "processing", "round_trip", "said"),
    [
        (250, 0.04, 0.001, "250 → 2, holds back 9.9 s"),
        (1, 0.004, 0.1, "1 → 26, waits for the network"),
        (26, 0.004, 0.1, "26 ✓"),
        (None, 0.004, 0.1, "26 is enough"),
        (12, None, 0.1, "12"),
        (None, None, 0.1, "unknown"),
    ],
)
def test_prefetch_is_advised_by_the_law_of_the_policy(
    current: int | None, processing: float | None, round_trip: float, said: str
) -> None:
    assert advice(current, processing, round_trip) == said
