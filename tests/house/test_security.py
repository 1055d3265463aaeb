"""The threat model promises what tests hold, and names them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = _NAMED.findall(PAGE)
    assert named
    missing = [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)]
    assert missing == []


def test_every_line_of_defence_names_its_test() -> None:
    rows = [line for line in PAGE.partition("## Not defended")[0].splitlines() if line.startswith("| ")]
    assert len(rows) > 20
    assert [row for row in rows if not _NAMED.search(row) and "held by" not in row] == []


def test_a_weakness_is_reported_where_the_threat_model_says() -> None:
    assert (ROOT / "SECURITY.md").is_file() and "](../SECURITY.md)" in PAGE


def functions(path: Path) -> set[str]:
    """The functions that a file of tests defines; none if it is not there."""
    if not path.is_file():
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
