"""Names from outside as people may safely be shown them: nothing in them steers a terminal, a page or an eye."""

from __future__ import annotations

import re

#: Control characters (a terminal obeys them), what separates lines, what turns the direction of writing, what cannot be
#: seen, and halves of surrogate pairs, which no output can encode.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, longest: int | None = None) -> str:
    """``text`` with each character that steers or hides written as Python would escape it: ESC becomes ``\\x1b``.

    A text without such characters stays as it is, backslashes included. What is longer than ``longest`` characters
    loses its middle.
    """
    if longest is not None and len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """As :func:`visible`, but for a text of several lines, which stay lines: a traceback, say."""
    return "\n".join(visible(line.replace("\t", "    ")) for line in text.split("\n"))


def visible_json(text: str) -> str:
    """JSON with such characters escaped inside its strings: another spelling of the same values."""
    return text if text.isascii() else _UNSEEN.sub(_json_escape, text)


def _escaped(found: re.Match[str]) -> str:
    sign = found.group()
    code = ord(sign)
    return _SHORT.get(sign) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _json_escape(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _utf16(found.group()))


def _utf16(sign: str) -> tuple[int, ...]:
    code = ord(sign)
    return (code,) if code < 0x10000 else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))
