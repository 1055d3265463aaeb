"""The reference pages tell what is declared, and the site can be built from docs/ without a link that leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {
    "views.md": ["lake.views.document"],
    "metrics.md": ["lake.metrics_page"],
    "rules.md": ["alerts.rules.document"],
    "laws.md": ["alerts.laws.document"],
    "cli.md": ["sojourn.reference", "cli"],
    "settings.md": ["sojourn.reference", "settings"],
}


@pytest.mark.parametrize("page", GENERATED)
def test_a_generated_page_is_what_is_declared(page: str) -> None:
    """``make docs`` writes it anew."""
    module, *words = GENERATED[page]
    told = subprocess.run([sys.executable, "-m", module, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / page).read_text("utf-8") == told.stdout, "run `make docs`"


def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """By ``mkdocs build --strict``, which fails on a warning."""
    config = ROOT / "deploy" / "site" / "mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    for page in ("index", "tutorial", "runbooks/backlog", "project/architecture", "adr/0001-formulas-once-in-sql"):
        assert (tmp_path / f"{page}.html").stat().st_size > 5000
    assert "runbooks/backlog.html" in (tmp_path / "rules.html").read_text("utf-8")
