"""Matchers of labels in Alertmanager's notation: ``severity="critical"``, ``queue=~"orders.*"``, ``!=``, ``!~``.

Source of the semantics: prometheus/alertmanager ``pkg/labels``. Regular expressions are RE2's, as Go's are: they match
in time linear in the text, whatever they say, and match the whole of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator

#: Characters of a matcher's value.
LONGEST_VALUE = 2_000
_MATCHER = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(=~|=|!=|!~)\s*(.*?)\s*", re.ASCII | re.DOTALL)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on one label; a label that is absent is empty. ValueError if it can hold for nothing."""

    name: str
    value: str
    is_regex: bool = False
    is_equal: bool = True

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"{self.name[:80]!r} is not the name of a label")
        if len(self.value) > LONGEST_VALUE:
            raise ValueError(f"a matcher's value has at most {LONGEST_VALUE} characters")
        if self.is_regex:
            try:
                _matches(self.value, "")
            except pa.ArrowInvalid as error:
                raise ValueError(f"{self.value[:80]!r} is not a regular expression: {error}") from error

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with ``labels`` meets it."""
        text = labels.get(self.name, "")
        holds = _matches(self.value, text) if self.is_regex else text == self.value
        return holds is self.is_equal

    def __str__(self) -> str:
        operator = ("=~" if self.is_equal else "!~") if self.is_regex else ("=" if self.is_equal else "!=")
        value = self.value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        return f'{self.name}{operator}"{value}"'


Matchers = tuple[Matcher, ...]


def all_match(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` meet every one of ``matchers``."""
    return all(matcher.matches(labels) for matcher in matchers)


def parse(text: str) -> Matcher:
    """The matcher that ``text`` writes; its value may stand without quotes. ValueError."""
    match = _MATCHER.fullmatch(text)
    if match is None:
        raise ValueError(f'{text[:80]!r} is not a matcher: write name="value", or one of =~, !=, !~')
    name, operator, value = match.groups()
    if value.startswith('"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            raise ValueError(f"{text[:80]!r}: the value's quotes do not end where it ends")
        value = quoted[1]
    elif re.search(r'(?<!\\)"', value):
        raise ValueError(f'{text[:80]!r}: a quote inside the value is written \\"')
    unescaped = re.sub(r'\\(["n\\])', lambda escape: _ESCAPES[escape[1]], value)
    return Matcher(name, unescaped, is_regex=operator.endswith("~"), is_equal=operator.startswith("="))


def _is_matcher(text: str) -> str:
    parse(text)
    return text


#: A setting that is a matcher.
MatcherText = Annotated[str, AfterValidator(_is_matcher)]


@lru_cache(maxsize=65_536)
def _matches(pattern: str, text: str) -> bool:
    return bool(pc.match_substring_regex(pa.scalar(text), pattern=f"^(?:{pattern})$").as_py())
