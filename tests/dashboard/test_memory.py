"""An open page that is renewed again and again, while its lake is written, holds no more than it did: eight hours are
14,400 renewals. What is kept is bounded one by one; objects and the reader's memory are counted over some of them."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from dashboard import behind, repository
from tests.dashboard.scene import _append as append_rows
from tests.dashboard.scene import alerts_of, write_story
from tests.dashboard.test_pages import AGES, opened

#: Before they are counted every figure that is kept has been drawn (`dashboard.figures._KEPT`).
WARM, RENEWALS = 36, 24
#: Of all objects so many may be new: interpreters and libraries fill caches of their own for a while.
GROWTH = 0.01


@pytest.mark.timeout(300)
def test_renewals_of_an_open_page_hold_no_more_with_each(
    tmp_path: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = datetime.now(UTC)
    lake = write_story(tmp_path, end=end, seconds=60, noisy_from=20)
    show(tmp_path, stale_after_seconds=AGES)
    monkeypatch.setattr(behind, "REST", 0)  # history is read anew with each commit, too
    monkeypatch.setattr(repository, "BELIEVED_SECONDS", 0.0)
    monkeypatch.setattr(repository, "PRESENT_SECONDS", 60.0)  # each renewal shows the commit before it
    monkeypatch.setattr(repository, "QUICK_SECONDS", 60.0)
    monkeypatch.setitem(repository.SHARES, "present", 0)
    # As many marks as a picture has at most: from here on none holds more than those before it.
    append_rows(lake, "alert_transitions", [row for _ in range(60) for row in alerts_of(end)[-1:]])
    app = opened("overview")
    root = str(tmp_path)

    def renewed(times: int) -> tuple[int, Counter[str], set[str], float]:
        for number in range(times):
            at = end - timedelta(seconds=40 - number % 20)
            append_rows(lake, "alert_transitions", alerts_of(at)[-1:])
            app.run()
            assert not app.exception
        gc.collect()
        kinds = Counter(type(one).__name__ for one in gc.get_objects())
        reader = repository._worker(root, "present").pid
        assert reader is not None
        return (
            kinds.total(),
            kinds,
            {*app.session_state._state.filtered_state},
            psutil.Process(reader).memory_info().rss,
        )

    objects, kinds, state, memory = renewed(WARM)
    later, new_kinds, later_state, later_memory = renewed(RENEWALS)
    assert later_state == state, "nothing is put into the session for each renewal"
    assert later - objects < GROWTH * objects, (new_kinds - kinds).most_common(10)
    assert later_memory - memory < 0.1 * memory
    assert len(repository._behind(root)._known) <= behind.MOST
    assert set(repository._known(root)) == set(repository.queries.RESTS_ON)
