"""The page of dead letters: how many, since when, whose and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from dashboard.questions.dead_letters import reasons
from dashboard.services.keys import QueueKey
from lake.reader import Reader
from tests.dashboard.conftest import STORY_END
from tests.dashboard.test_pages import AGES, heading, opened, words
from tests.dashboard.troubles import QUEUE


def test_the_page_says_where_it_goes_on_since_when_whose_and_why(troubled: Path, show: Callable[..., None]) -> None:
    show(troubled, stale_after_seconds=AGES)
    app = opened("dead_letters")
    said = words(app)
    assert heading(app) == "invoices dead-letters messages now"
    assert re.search(r"invoices ◆ goes on \d+ \d+ % \d+ 03:00 UTC, 6 min \d+ s ago .* \d+ Queue|goes on", said)
    assert re.search(r"card declined \d+ [1-4] 03:0\d UTC", said)
    assert "no reason was told" in said and "<b>boom</b> & co" in said
    assert re.search(r"Whose .* birch \d+", said)
    assert "orders" not in said  # nothing of it was given up
    assert len(app.get("plotly_chart")) == 1 and app.selectbox(key="queue").value == QUEUE


def test_reasons_are_counted_from_the_days_asked_for(troubled: Path) -> None:
    key = QueueKey("nats", QUEUE)
    with Reader(troubled) as reader:
        dead = reader.query("SELECT SUM(dead_lettered) AS n FROM partials").to_pylist()[0]["n"]
        told = reader.query(reasons([key], STORY_END.replace(hour=0), STORY_END)).to_pylist()
        before = reader.query(reasons([key], STORY_END.replace(day=27, month=2), STORY_END.replace(day=28, month=2)))
    assert sum(row["messages"] for row in told) == dead > 10
    assert before.num_rows == 0


def test_where_nothing_was_given_up_the_page_says_so(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    assert heading(opened("dead_letters")) == "Nothing was dead-lettered in the last day"
