"""How long to wait after so many failures."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sojourn.client.backoff import doubled


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.25), (1, 0.25), (2, 0.5), (5, 4.0), (6, 5.0), (10**9, 5.0)])
def test_a_pause_doubles_with_each_failure_up_to_the_longest(failures: int, seconds: float) -> None:
    assert doubled(failures, 0.25, 5.0) == seconds
    span = doubled(failures, timedelta(seconds=0.25), timedelta(seconds=5.0))
    assert span == timedelta(seconds=seconds)
