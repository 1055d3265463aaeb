"""What tests of the folds share."""

from __future__ import annotations

import pytest

from spark_analytics.state.feed import Came
from spark_analytics.state.present import Present


@pytest.fixture
def folded_anew(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each time that the lake was read from its beginning."""
    times: list[None] = []
    whole = Present._fold_anew

    def counted(self: Present, reason: Exception, came: Came) -> None:
        times.append(None)
        whole(self, reason, came)

    monkeypatch.setattr(Present, "_fold_anew", counted)
    return times
