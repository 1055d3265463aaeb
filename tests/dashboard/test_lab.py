"""The page Lab: a real simulation in a process of its own, shown, cancelled, and refused where it would be too much."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.labs import Laboratory, Question, Trial
from dashboard.services import lab
from dashboard.services.keys import QueueKey
from lake.errors import UserError
from tests.dashboard.conftest import STORY_END
from tests.dashboard.test_pages import heading, opened, words
from tests.support.waiting import wait_until


def ended(app: AppTest) -> AppTest:
    """The page once its simulation has."""
    wait_until(lambda: app.session_state["trial"].done, "the simulation", seconds=60)
    return app.run()


def test_a_scenario_is_run_every_way_and_the_best_is_named(story: Path, show: Callable[..., None]) -> None:
    show(story)
    app = opened("lab", runs="1", scenario="noisy-neighbour")
    assert heading(app) == "Lab" and "Noisy neighbour, 12:1" in words(app)
    app = ended(app.button[0].click().run())
    said = words(app)
    assert re.fullmatch(r"Fair order: quiet tenants wait (9\d|1\d\d) ms at p99 instead of 4\d s", heading(app))
    assert "what is compared with" in said and "entitled" in said and "One run of each way" in said
    assert len(app.get("plotly_chart")) == 2
    assert not app.exception


def test_what_the_lake_has_no_events_of_is_not_run_and_says_why(story: Path, show: Callable[..., None]) -> None:
    show(story)
    app = opened("lab", what="lake", queue="orders", minutes="5")  # the story has metrics, and no events
    app = ended(app.button[0].click().run())
    assert "The simulation has no answer" in words(app) and "nothing was finished in that time" in words(app)


def test_more_than_the_page_runs_is_refused_with_the_command(
    story: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(story)
    monkeypatch.setattr("dashboard.pages.lab.MOST_MESSAGES", 10)
    app = opened("lab", what="lake", queue="orders", minutes="60")
    assert "10 are run again from here at most" in words(app) and app.button[0].disabled


def test_one_runs_at_a_time_tells_how_far_it_is_and_is_cancelled(tmp_path: Path) -> None:
    place = Laboratory(tmp_path)
    first = place.start(Question(scenario="noisy-neighbour", seeds=500))
    wait_until(lambda: first.ended > 0, "the first run", seconds=60)
    assert first.runs == 3000 and first.way == "no control"
    with pytest.raises(UserError, match="another viewer's simulation runs"):
        place.start(Question(scenario="steady-95"))
    first.cancel()
    wait_until(lambda: first.done, "its end", seconds=60)
    assert first.error == "cancelled" and first.found is None


def test_what_is_known_is_not_simulated_again_and_what_failed_is(tmp_path: Path) -> None:
    place = Laboratory(tmp_path)
    wrong = Question(scenario="--config=/etc/passwd")
    first = place.start(wrong)
    wait_until(lambda: first.done, "its end", seconds=60)
    assert "there is no scenario '--config=/etc/passwd'" in first.error
    assert place.start(wrong) is not first
    known = Trial(Question(scenario="known"), ())
    known.done, known.found = True, {}
    place.known[known.question] = known
    assert place.start(known.question) is known


def test_names_from_a_lake_are_values_of_options_and_never_options() -> None:
    question = Question(place=QueueKey("--lake=/", "-q", "--x"), since=STORY_END, until=STORY_END + timedelta(hours=1))
    assert question.arguments()[3:] == [
        "--from-lake=2026-03-01T03:07:00+00:00..2026-03-01T04:07:00+00:00",
        "--most=100000",
        "--queue=--lake=//-q",
        "--subscriber=--x",
    ]


def estimate(mean: float | None, half: float | None = None) -> dict[str, float | None]:
    low, high = (None, None) if mean is None or half is None else (mean - half, mean + half)
    return {"mean": mean, "low": low, "high": high}


def way(name: str, quiet: float, change: float, half: float, worse: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "quiet_p99": estimate(quiet, half),
        "quiet_change": estimate(change, half),
        "noisy_p99": estimate(None),
        "completed": estimate(0.5, 0.01),
        "done": 10,
        "limited": 1.5,
        "innocents": 2,
        "worse": list(worse),
        "course": {"at": [1.0], "quiet_oldest": [0.0], "backlog": [3]},
    }


def test_none_is_best_whose_interval_holds_no_difference_or_who_harms() -> None:
    found = {
        "nothing": "no control",
        "title": "t",
        "messages": 7,
        "noisy": [],
        "seeds": 3,
        "happened": {"quiet_p99": 4.0, "noisy_p99": None, "completed": 1.1},
        "ways": [
            way("no control", 4.0, 0.0, 0.5),
            way("maybe", 3.9, -0.1, 0.5),
            way("harmful", 1.0, -3.0, 0.5, ("less is completed",)),
        ],
    }
    assert lab.headline(found) == "No way is better than doing nothing"
    happened, nothing, maybe, harmful = lab.rows(found)
    assert (happened.name, happened.cells[0], happened.cells[3]) == ("as it happened", "4 s", "110 %")
    assert (nothing.state, maybe.state, harmful.state) == ("nothing", "same", "worse")
    assert harmful.cells == (
        "1 s (500 ms to 1.5 s)",
        "−3 s (−3.5 s to −2.5 s)",
        "–",
        "50 % (49 % to 51 %)",
        "1.5 a run, 2 for nothing",
        "less is completed",
    )
    found["ways"].append(way("entitled", 0.5, -3.5, 0.1))
    assert lab.headline(found) == "Entitled: quiet tenants wait 500 ms at p99 instead of 4 s"
