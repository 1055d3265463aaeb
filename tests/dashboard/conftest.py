"""One story for all: written once, read by many tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard import repository
from dashboard.run import LAKE_VARIABLE, SETTINGS_VARIABLE
from dashboard.settings import DashboardSettings
from tests.dashboard.scene import write_story
from tests.dashboard.troubles import write_troubles
from tests.support.pages import look_for_components_once

look_for_components_once()

#: Far from the present, so that what a page says of age can be told from what it says of the story.
STORY_END = datetime(2026, 3, 1, 3, 7, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a lake whose story ended at ``STORY_END``."""
    root = tmp_path_factory.mktemp("story")
    write_story(root, end=STORY_END)
    for commit in root.glob("*/*/_delta_log/*.json"):
        os.utime(commit, (STORY_END.timestamp(), STORY_END.timestamp()))
    return root


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a lake with the story and, on another queue, consumers that hold too much and dead-letter."""
    root = tmp_path_factory.mktemp("troubled")
    write_story(root, end=STORY_END)
    write_troubles(root, end=STORY_END)
    return root


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Point the pages at a lake, as the server's environment would."""

    def point(root: Path, **settings: float) -> None:
        monkeypatch.setenv(LAKE_VARIABLE, str(root))
        for name in ("FIRST_SECONDS", "HEADING_SECONDS", "PRESENT_SECONDS"):
            monkeypatch.setattr(repository, name, 60.0)  # a test sees a page once
        monkeypatch.setenv(SETTINGS_VARIABLE, DashboardSettings(**settings).model_dump_json())

    return point
