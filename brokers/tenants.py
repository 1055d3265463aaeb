"""Where a message names its tenant: one syntax for every kind of broker, documented in docs/brokers/tenants.md.

A rule is ``WHERE:WHAT``; of several the first that finds a name counts::

    header:NAME       a header of the message, whatever its case
    json:PATH         a value in the message's document: args[0].tenant, meta["tenant id"]
    column:NAME       a column of the row that holds the message
    key:PATTERN       the message's key, or the key under which the store keeps it
    queue:PATTERN     the name of the queue

A PATTERN holds ``{tenant}`` once, beside plain text, ``*`` and ``?``: ``queue:{tenant}-*``. Each takes as little as it
can, from the left.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, PlainSerializer

from brokers.settings import Settings
from brokers.texts import valid

log = logging.getLogger(__name__)

#: Longer names are cut.
_LONGEST = 256
#: Steps of a path: deeper documents are nobody's.
_DEEPEST = 32
_STEP = re.compile(r"""(?:^|\.)(?P<name>[^.\[\]"]+)|\[(?P<index>\d+)\]|\["(?P<quoted>[^"]+)"\]""")
_SOURCES = ("header", "json", "column", "key", "queue")
_PLACE = "{tenant}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One place to look at. ``path`` is that of ``json``, ``pattern`` that of ``key`` and ``queue``."""

    source: str
    text: str
    path: tuple[str | int, ...] = ()
    pattern: re.Pattern[str] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.source}:{self.text}"


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Message(NamedTuple):
    """What is known of one message; ``columns`` are of the row that holds it, where a database does."""

    queue: str = ""
    key: str | None = None
    headers: Mapping[str, Any] = _NOTHING
    document: Any = None
    columns: Mapping[str, Any] = _NOTHING


def parse(text: Any) -> Rule:
    """The rule that ``text`` writes; ValueError says what is wrong with it."""
    if isinstance(text, Rule):
        return text
    source, colon, rest = str(text).partition(":")
    if not colon or source not in _SOURCES or not rest:
        raise ValueError(f"a tenant is found by {', '.join(f'{name}:…' for name in _SOURCES)}, not by {text!r}")
    if source == "json":
        return Rule(source, rest, path=_path(rest))
    if source in ("key", "queue"):
        return Rule(source, rest, pattern=_pattern(rest))
    return Rule(source, rest)


def _path(text: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    rest = text.removeprefix("$").removeprefix(".")
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at) if at == 0 or rest[at] in ".[" else None
        if step is None:
            raise ValueError(f'{text!r} is no path: write names with dots between, [0], and ["odd names"]')
        index = step["index"]
        steps.append(int(index) if index is not None else step["name"] or step["quoted"])
        at = step.end()
    if not steps or len(steps) > _DEEPEST:
        raise ValueError(f"a path has 1 to {_DEEPEST} steps")
    return tuple(steps)


def _pattern(text: str) -> re.Pattern[str]:
    if text.count(_PLACE) != 1:
        raise ValueError(f"a pattern holds {_PLACE} once, as in queue:{_PLACE}-*")
    if text.count("*") > 8:
        raise ValueError("a pattern holds at most 8 of *")
    parts = {"*": ".*?", "?": ".", _PLACE: "(?P<tenant>.+?)"}
    written = "".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*|\?|\{tenant\})", text))
    return re.compile(written, re.DOTALL)


def _rules(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


#: A setting ``tenant = "json:args[0].tenant"``, or a list of which the first that finds a name counts.
TenantRules = Annotated[
    tuple[Annotated[Rule, BeforeValidator(parse), PlainSerializer(str, return_type=str)], ...],
    BeforeValidator(_rules),
    Field(description="where a message names its tenant, as docs/brokers/tenants.md has it; empty: nobody looks"),
]


class Older(Settings):
    """Keys that said where a tenant stands before ``tenant`` did; each kind of broker that had some declares them."""

    def rules(self) -> list[str]:
        """The same, as ``tenant`` says it."""
        raise NotImplementedError


def newer(value: Any, older: type[Older]) -> Any:
    """A table of settings with ``tenant`` in place of the keys of ``older``, which are warned of; for a validator."""
    if not isinstance(value, Mapping) or not (given := value.keys() & older.model_fields.keys()):
        return value
    names = " and ".join(sorted(given))
    if "tenant" in value:
        raise ValueError(f"tenant says what {names} said before: take {names} out")
    rules = older.model_validate({name: value[name] for name in given}).rules()
    written = json.dumps(rules[0] if len(rules) == 1 else rules)
    log.warning("%s of %s is an older key: write tenant = %s", names, value.get("name", "a table"), written)
    return {name: each for name, each in value.items() if name not in given} | {"tenant": rules}


def tenant_of(rules: Sequence[Rule], message: Message) -> str | None:
    """The name that the first of ``rules`` finds in ``message``; None where none does."""
    for rule in rules:
        name = _name(_found(rule, message))
        if name is not None:
            return name
    return None


def needs(rules: Sequence[Rule], *sources: str) -> bool:
    """Whether any of ``rules`` looks at one of ``sources``: what nobody looks at need not be read."""
    return any(rule.source in sources for rule in rules)


def only(*sources: str) -> BeforeValidator:
    """Refuses rules that look where a kind of broker has nothing: put after :data:`TenantRules` in ``Annotated``."""

    def check(value: Any) -> Any:
        for rule in map(parse, _rules(value)):
            if rule.source not in sources:
                raise ValueError(f"{rule} is not found here: {', '.join(sources)} can be")
        return value

    return BeforeValidator(check)


def _found(rule: Rule, message: Message) -> Any:
    if rule.source == "json":
        return _at(message.document, rule.path)
    if rule.source == "column":
        return message.columns.get(rule.text)
    if rule.source == "header":
        value = message.headers.get(rule.text)
        if value is None:
            wanted = rule.text.casefold()
            value = next((value for name, value in message.headers.items() if name.casefold() == wanted), None)
        return value.strip() if isinstance(value, str) else value
    text = message.queue if rule.source == "queue" else message.key
    matched = rule.pattern.fullmatch(text) if rule.pattern is not None and text is not None else None
    return matched["tenant"] if matched is not None else None


def _at(document: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, int):
            if not isinstance(document, (list, tuple)) or step >= len(document):
                return None
            document = document[step]
        elif isinstance(document, Mapping):
            document = document.get(step)
        else:
            return None
    return document


def _name(value: Any) -> str | None:
    """A tenant's name: texts and whole numbers, nothing else."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    if isinstance(value, int) and value.bit_length() > 128:
        return None
    return valid(str(value))[:_LONGEST] or None
