"""What AppTest runs is this process' own: another one that runs the same page writes elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from streamlit.testing.v1 import app_test

from tests.dashboard.test_pages import opened, words


def test_the_script_of_a_page_stands_where_no_other_process_writes(scripts: Path) -> None:
    before = {*scripts.iterdir()}
    app = opened("sql")
    assert app._script_path.startswith(f"{scripts}/") and scripts.is_relative_to(tempfile.gettempdir())
    assert app_test.TMP_DIR.name == str(scripts) and {*scripts.iterdir()} >= before
    assert "SQL" in words(app)
    Path(app._script_path).write_text("")  # as another process begins to write it
    assert words(app.run()) == "", "which is how a page looks that says nothing at all"
