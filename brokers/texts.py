"""Texts from outside as Unicode that every column takes: the one place where lone surrogates are replaced.

JSON may escape half of a surrogate pair (``"\\\\ud800"``), Python keeps it in a str, and no UTF-8 has it: Arrow, Delta
and Kafka refuse such a text when it is committed, long after the sender could be told. So it becomes U+FFFD here.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
#: An escape that may be half of a pair.
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_REPLACEMENT = "\ufffd"


def valid(text: str) -> str:
    """``text`` with U+FFFD for each surrogate; itself where there is none."""
    if text.isascii():
        return text
    return _SURROGATE.sub(_REPLACEMENT, text)


def loads(raw: bytes | str) -> Any:
    """What the JSON ``raw`` (UTF-8) says, every text and key of it :func:`valid`. ValueError, RecursionError."""
    text = raw.decode("utf-8-sig") if isinstance(raw, bytes) else raw
    told = json.loads(text)
    if _ESCAPED.search(text) is None and (isinstance(raw, bytes) or _SURROGATE.search(text) is None):
        return told
    return _all_valid(told)


def _all_valid(value: Any) -> Any:
    if isinstance(value, str):
        return valid(value)
    if isinstance(value, dict):
        return {valid(name): _all_valid(inner) for name, inner in value.items()}
    return [_all_valid(inner) for inner in value] if isinstance(value, list) else value
