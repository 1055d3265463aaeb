"""What people are shown on a terminal: names from outside are text there, whatever they hold."""

from __future__ import annotations

import io
import json
import logging

import pyarrow as pa
import pytest

from sojourn.cli import rows
from sojourn.cli.logs import OneLine
from sojourn.cli.main import run
from sojourn.demo.screen import Status, _rendered
from sojourn.doctor import Finding, Grade, shown
from sojourn.supervise.supervisor import Event
from sojourn.up import _say

TITLE = "\x1b]0;owned\x07\x1b[31m\x9b2J"
NAMES = (TITLE, "a\nforged 9\r", "pay\u202efdp", "[red]x[/]", "\\[bold]", "[/nothing]", ":smile:", "=1+1", "\x00")


class Screen(io.StringIO):
    """A terminal, as far as writers ask."""

    def isatty(self) -> bool:
        return True


def written(format: str, out: io.StringIO) -> str:
    table = pa.table({"[b]name\x1b": NAMES, "n": range(len(NAMES))})
    rows.write(format, table.schema, table.to_batches(), out)
    return out.getvalue()


@pytest.mark.parametrize("format", rows.FORMATS)
def test_no_name_commands_a_terminal(format: str) -> None:
    text = written(format, Screen())
    assert [sign for sign in text if not (sign.isprintable() or sign == "\n")] == []
    assert "pay\\u202efdp" in text


def test_a_row_of_a_table_is_one_line_and_its_brackets_are_text() -> None:
    lines = written("table", io.StringIO()).strip().splitlines()
    assert len(lines) == 2 + len(NAMES) + 2
    assert [next(line for line in lines if part in line) for part in ("[red]x[/]", "\\[bold]", "[/nothing]", ":smile:")]
    assert "[b]name\\x1b" in lines[0]


@pytest.mark.parametrize(("columns", "blocks"), [(60, False), (30, True)])
def test_where_words_would_be_cut_each_row_is_a_block(
    columns: int, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setenv("COLUMNS", str(columns))
    table = pa.table(
        {
            "action_id": ["beaab2f975fb415a", "aab519a6bc57444d"],
            "rate": [16.4448, None],
            "reason": ["next to nothing waits", "nobody suffers: quiet tenants wait 2.39 s"],
        }
    )
    lines = rows.as_table(table).splitlines()
    assert max(map(len, lines)) <= columns
    assert ("rate       16.4448" in lines) == ("rate       –" in lines) == blocks
    words = " ".join(lines).split()
    for column in table.columns:
        for value in column.to_pylist():
            assert set(str(value or "–").split()) <= set(words)


def test_json_spells_what_steers_in_escapes_and_means_the_same() -> None:
    lines = written("json", io.StringIO()).splitlines()
    assert [json.loads(line)["[b]name\x1b"] for line in lines] == list(NAMES)
    assert "\x9b" not in "".join(lines) and "\u202e" not in "".join(lines)


def test_csv_for_a_program_is_the_very_value() -> None:
    text = written("csv", io.StringIO())
    assert TITLE in text and "\n=1+1,7\n" in text


def test_no_name_forges_an_entry_of_the_log_or_colours_it() -> None:
    name = "x\n2026-01-01 ERROR alerts: all is lost\x1b[2K"
    record = logging.LogRecord("a.b", logging.WARNING, "", 0, "queue %s is gone", (name,), None)
    shown = OneLine("%(levelname)s %(name)s: %(message)s").format(record)
    assert shown == r"WARNING a.b: queue x\n2026-01-01 ERROR alerts: all is lost\x1b[2K is gone"
    try:
        raise ValueError(name)
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert "\x1b" not in OneLine("%(message)s").format(record)


@pytest.mark.parametrize("format", ["limits", "actions"])
def test_what_an_option_names_is_told_without_its_escapes(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([format, "--lake", "/nowhere\x1b[2J\udcff"]) != 0
    said = capsys.readouterr().err
    assert "\x1b" not in said and said.endswith("\n")


def test_findings_events_and_the_demo_say_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    shown([Finding("broker", Grade.FAIL, f"no {TITLE}[red]", "\\[bold]fix")])
    console = Console(force_terminal=True, no_color=True, width=200)
    _say(console, Event("collect", f"ended: {TITLE}[red]x[/]", bad=False))
    console.print(_rendered(Status("p", 1, 2, alerts=[f"A ({TITLE})"], limits=[TITLE], troubles=[TITLE])))
    said = capsys.readouterr()
    assert "\x1b]" not in said.out + said.err and "\x9b" not in said.out + said.err
    assert "[red]" in said.out and "\\[bold]fix" in said.out
