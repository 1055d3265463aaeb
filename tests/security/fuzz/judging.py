"""Whether a statement got through that must not: the answer of the check, held against readers that are not its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lake.errors import UserError
from lake.select import canonical
from lake.tables import TABLES
from lake.views import VIEWS

KNOWN = frozenset({*TABLES, *VIEWS})

#: What a canonical statement may hold outside of its quotes; a reader as simple as can be.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`")
_STRANGE = re.compile(r"--|/\*|\*/|[\\$;{}#@?\"'`]|[^\x20-\x7e]")
_CALLED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\s*\(")
_BEHIND_FROM = re.compile(r"(?<!DISTINCT )(?<!EXTRACT\(HOUR )\b(?:FROM|JOIN)\s+(\S+)")
#: What no function that is called may have in its name.
_NEVER = re.compile(
    r"reflect|java_method|getenv|identifier|call_function|user_defined|xml|xpath|input_file|read_|_scan|glob|sniff"
    r"|transform\s+using|directory|current_user|session_user|version|getvariable|http|secret",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one statement: refused, or accepted as ``text``; ``wrong`` says what is wrong with that."""

    sent: str
    text: str | None = None
    crash: str = ""
    wrong: str = ""


def judge(sent: str) -> Verdict:
    """Check ``sent`` as every endpoint does, and the result by other means."""
    try:
        text = canonical(sent, KNOWN)
    except UserError:
        return Verdict(sent)
    except BaseException as error:
        return Verdict(sent, crash=f"{type(error).__name__}: {error}")
    try:
        again = canonical(text, KNOWN)
    except Exception as error:
        return Verdict(sent, text, wrong=f"refused when it is read again: {error}")
    if again != text:
        return Verdict(sent, text, wrong=f"changes when it is read again: {again}")
    return Verdict(sent, text, wrong=strange(text))


def called(text: str) -> list[str]:
    """The words before parentheses in a canonical text."""
    return _CALLED.findall(_QUOTED.sub("Q", text))


def strange(text: str) -> str:
    """What a canonical text holds that it must not, found without any parser of SQL; empty if nothing."""
    outside = _QUOTED.sub("Q", text)
    if "${" in text:
        return "holds a variable"
    if found := _STRANGE.search(outside):
        return f"holds {found.group()!r} outside of quotes"
    for name in called(text):
        if _NEVER.search(name):
            return f"calls {name}"
    for source in _BEHIND_FROM.findall(_QUOTED.sub(lambda found: found.group().replace(" ", "_"), text)):
        if source.startswith("'") or "`.`" in source:
            return f"reads {source}"
    return ""
