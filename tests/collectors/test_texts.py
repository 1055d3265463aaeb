"""Lone surrogates end at the border, wherever JSON comes from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.texts import loads, valid

_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, st.booleans())
def test_whatever_json_holds_is_utf_8_afterwards(value: Any, escaped: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escaped)
    told = loads(raw.encode() if escaped else raw)
    json.dumps(told, ensure_ascii=False).encode()


@given(st.text())
def test_a_text_without_surrogates_stays_as_it_is(text: str) -> None:
    assert valid(text) == text and loads(json.dumps(text).encode()) == text


def test_half_a_pair_is_replaced_and_a_whole_one_is_a_letter() -> None:
    told = loads(b'{"\\ud800x": ["\\ud83d\\ude00", "\\\\ud800", "\\uDC00"]}')
    assert told == {"\ufffdx": ["😀", "\\ud800", "\ufffd"]}
    for raw in (b'"\xed\xa0\x80"', '"x"'.encode("utf-16")):
        with pytest.raises(ValueError):
            loads(raw)
