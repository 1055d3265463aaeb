"""Hostile statements where SQL comes in without Spark: the reader, the command, a file, rules."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from alerts.check import check
from lake.errors import SojournError, UserError
from lake.reader import Reader
from lake.store import Lake
from sojourn.cli.main import run
from tests.security.fuzz.statements import HOSTILE, SOURCES, WHOLE

SECRET = "secret-of-the-environment"
#: One that is understood as a harmless question.
HARMLESS = ("range(3)", "(VALUES ('q')) AS t(x)")


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOJOURN_FUZZ_SECRET", SECRET)


def statements(marker: Path) -> list[str]:
    """The hostile fragments, each in a statement of its own."""
    calls = [f"SELECT {text} AS value FROM partials" for text in HOSTILE]
    sources = [f"SELECT 1 AS value FROM {text}" for text in SOURCES if text not in HARMLESS]
    hidden = [f"SELECT 'a' AS value -- \\\n/*\nUNION ALL {text}\n-- \\\n*/" for text in WHOLE]
    return [text.replace("{marker}", str(marker)) for text in (*calls, *sources, *WHOLE, *hidden)]


def test_the_reader_and_the_command_refuse_every_hostile_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Lake(tmp_path / "lake").create()
    marker = tmp_path / "made"
    reader = Reader(tmp_path / "lake")
    for text in statements(marker):
        with pytest.raises(SojournError):
            reader.query(text)
            raise AssertionError(f"answered: {text}")
    reader.close()
    asked = ["sql", "--engine", "reader", "--lake", str(tmp_path / "lake")]
    for text in (statements(marker)[0], WHOLE[0].replace("{marker}", str(marker))):
        assert run([*asked, text]) == 2
        monkeypatch.setattr("sys.stdin", io.StringIO(text + ";\n"))
        assert run(asked) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err and "Traceback" not in said.err
    assert run([*asked, "--format", "csv", "SELECT count(*) AS n FROM partials"]) == 0
    assert capsys.readouterr().out == "n\n0\n"
    assert not marker.exists()


def test_no_rule_file_brings_a_hostile_expression_in(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    for number, text in enumerate(statements(marker)):
        rules = tmp_path / f"rules-{number}.yml"
        folded = "\n".join(f"          {line}" for line in text.splitlines())
        rules.write_text(f"groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: |-\n{folded}\n")
        with pytest.raises(UserError):
            check([rules], builtin=False)
            raise AssertionError(f"taken: {text}")
    assert not marker.exists()
