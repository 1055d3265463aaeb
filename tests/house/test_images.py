"""The pictures that `make images` takes are those that docs show, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.browser import DOCUMENTED

ROOT = Path(__file__).parents[2]


def test_every_picture_is_taken_and_shown() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    shown = {name for page in pages for name in re.findall(r"images/([a-z-]+)\.png", page.read_text("utf-8"))}
    assert shown == {path.stem for path in ROOT.glob("docs/images/*.png")} == DOCUMENTED
