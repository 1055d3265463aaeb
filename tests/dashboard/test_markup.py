from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dashboard.pages import markup
from dashboard.services.alerting import AlertCard, Happening, LimitCard
from dashboard.services.keys import QueueKey
from dashboard.services.overview import Fact, QueueCard, Verdict
from dashboard.services.queue import TenantLine
from tests.dashboard.conftest import STORY_END

EVIL = '<img src=x onerror="alert(1)">'


def test_names_from_outside_never_become_markup() -> None:
    line = TenantLine(EVIL, True, "1", 0.5, "1", "1", "1 s", "1/s → 1/s", "empty", "–")
    pieces = [
        markup.tenants([line], EVIL),
        markup.alerts([AlertCard(EVIL, EVIL, True, "firing", "", EVIL, EVIL, "1", None)]),
        markup.limits([LimitCard(EVIL, EVIL, "1/s", "", EVIL, EVIL)]),
        markup.timeline([Happening(STORY_END, "", EVIL, EVIL, "alert")]),
        markup.section(EVIL, EVIL),
        markup.note(EVIL),
    ]
    for piece in pieces:
        assert "<img" not in piece and "&lt;img" in piece


def test_a_label_reads_markdown_signs_as_themselves() -> None:
    assert markup.plain("a_b*c [x](y) :red[z] $1$") == r"a\_b\*c \[x\]\(y\) \:red\[z\] \$1\$"
    assert markup.plain("&lt;b&gt;") == r"\&lt\;b\&gt\;"


@pytest.mark.parametrize("name", ["orders", "tenant:42", "a.b.c", "high-priority", "a_b:c", "jobs@eu", "x--y"])
def test_what_names_are_made_of_is_no_address_and_no_picture(name: str) -> None:
    shown = markup.plain(name).replace("\\", "")
    assert shown.replace("\u2060", "") == name
    assert not re.search(r"[-.\w+]+@[-\w]+|https?://|www\.|:[\w+-]+:|(^|\s)(<?->|<-|--|[<>~]=)(\s|$)", shown)


@pytest.mark.parametrize(
    "name",
    ["http://evil.example", "www.evil.example", "a@evil.example", ":smile:", ":material_home:", "a -> b", ":+1:"],
)
def test_addresses_pictures_and_arrows_are_broken(name: str) -> None:
    shown = markup.plain(name).replace("\\", "")
    assert shown.replace("\u2060", "") == name
    assert not re.search(r"[-.\w+]+@[-\w]+|https?://|www\.|:[\w+-]+:|(^|\s)(<?->|<-|--|[<>~]=)(\s|$)", shown)


def test_what_steers_the_eye_is_shown_and_what_has_no_end_is_cut() -> None:
    assert "pay\\u202efdp" in markup.title("pay\u202efdp")
    assert len(markup.queues([], "x" * 100_000)) < 5_000


#: What is Markdown on purpose: files beside the rules, by whoever runs the alert process. No message has a part in it.
FILES = {"found.runbook"}


def _calls() -> list[tuple[str, ast.Call]]:
    """Every call ``st.NAME(…)`` of the dashboard."""
    found = []
    for path in (Path(__file__).parents[2] / "dashboard").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.fullmatch(r"st\.\w+", called := ast.unparse(node.func)):
                found.append((called.removeprefix("st."), node))
    return found


def test_nothing_but_plain_text_of_our_own_goes_where_streamlit_reads_markdown() -> None:
    reading = {"title", "header", "subheader", "markdown", "caption", "write", "error", "warning", "info", "success"}
    reading |= {"exception", "toast", "badge", "metric", "page_link", "link_button", "button", "popover", "expander"}
    reading |= {"segmented_control", "pills", "radio", "checkbox", "toggle", "tabs", "status", "spinner", "table"}
    calls = [call for name, call in _calls() if name in reading]
    texts = [
        value
        for call in calls
        for value in (*call.args[:1], *(word.value for word in call.keywords if word.arg in ("label", "help", "body")))
        if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "queue.page")
    ]
    assert texts
    for text in texts:
        if ast.unparse(text) in FILES:
            continue
        pieces = (
            [one.value for one in text.values if isinstance(one, ast.FormattedValue)]
            if isinstance(text, ast.JoinedStr)
            else []
            if isinstance(text, ast.Constant)
            else [text]
        )
        assert all(ast.unparse(piece).startswith("markup.plain(") for piece in pieces), ast.unparse(text)


def test_a_command_in_a_reason_is_set_apart() -> None:
    assert "<code>sojourn collect</code>" in markup.note("Look at `sojourn collect`.")


def test_unknown_figures_are_one_quiet_line_with_their_reason() -> None:
    facts = (Fact("Backlog", "unknown", "no tenant seen"), Fact("In flight", "3"), Fact("Drained", "unknown"))
    card = QueueCard(QueueKey("nats", "a"), "a", Verdict.UNKNOWN, "", "a: b", facts, (), "look at `sojourn collect`")
    shown = markup.queue(card)
    assert shown.count("<dd>") == 1 and "<dd>3</dd>" in shown
    assert "Unknown: backlog, drained – look at <code>sojourn collect</code>." in shown


def test_an_alert_is_as_loud_as_its_severity() -> None:
    def shown(severity: str, *, firing: bool = True) -> str:
        return markup.alerts([AlertCard("R", severity, firing, "", "", "", "", "", None)])

    assert '<li class="act">' in shown("critical") and '<li class="watch">' in shown("warning")
    assert '<li class="mild">' in shown("info") and '<li class="pending">' in shown("critical", firing=False)


def test_a_share_beyond_all_bounds_keeps_the_bar_in_its_frame() -> None:
    line = TenantLine("a", False, "1", 7.0, "1", "1", "1 s", "", "empty", "–")
    assert "width:100%" in markup.tenants([line], "")
