from __future__ import annotations

from dashboard.pages import markup
from dashboard.services.alerting import AlertCard, Happening, LimitCard
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


def test_a_title_reads_markdown_signs_as_themselves() -> None:
    assert markup.plain("a_b*c [x](y) :red[z] $1$") == r"a\_b\*c \[x\]\(y\) \:red\[z\] \$1\$"


def test_a_command_in_a_reason_is_set_apart() -> None:
    assert "<code>sojourn collect</code>" in markup.note("Look at `sojourn collect`.")


def test_a_share_beyond_all_bounds_keeps_the_bar_in_its_frame() -> None:
    line = TenantLine("a", False, "1", 7.0, "1", "1", "1 s", "", "empty", "–")
    assert "width:100%" in markup.tenants([line], "")
