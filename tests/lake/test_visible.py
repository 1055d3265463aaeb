from __future__ import annotations

import unicodedata

import pytest

from lake.visible import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("a\nb\r\tc\x00", r"a\nb\r\tc\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("invoice\u202efdp.exe", r"invoice\u202efdp.exe"),
        ("or\u200bders", r"or\u200bders"),
        ("\ud800x", r"\ud800x"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_or_hides_is_shown_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", ["", "orders-7 [x] \\n", "Größe 寿司 🦆", "می‌خواهم", "👩‍🚒"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_no_control_or_direction_character_of_unicode_gets_through() -> None:
    steering = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for code in range(0x110000):
        sign = chr(code)
        if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(sign) in steering:
            assert visible(sign).isascii(), hex(code)


def test_a_text_beyond_all_bounds_loses_its_middle() -> None:
    assert visible("a" * 40_000 + "z" * 40_000, 9) == "aaaa…zzzz"
    assert visible("abcdefghi", 9) == "abcdefghi"
    assert len(visible("ab" * 9, 10)) == 10


def test_lines_stay_lines_and_lose_their_escapes() -> None:
    assert visible_lines("Traceback\n\tat x\x1b[31m\r\n") == "Traceback\n    at x\\x1b[31m\\r\n"
