"""What the rule files say of one alert: its rule as it stands there, and its part of the runbook beside it.

They are the files that the alert process evaluates, as the server was told of them: read when somebody asks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from alerts.rules.model import RuleEntry
from dashboard.run import RULES_VARIABLE
from lake.errors import UserError

#: Of each file so many characters are read.
MOST = 262_144


@dataclass(frozen=True, slots=True)
class RuleText:
    """What stands in the files: ``rule`` in YAML, ``runbook`` in Markdown; each empty where it is not found."""

    rule: str = ""
    runbook: str = ""

    @property
    def entry(self) -> RuleEntry | None:
        """The rule, read; None where there is none, or it is not one."""
        return _entry(self.rule)


def told() -> tuple[Path, ...]:
    """The rule files that the server was told of."""
    return tuple(map(Path, json.loads(os.environ.get(RULES_VARIABLE) or "[]")))


def of(name: str, files: Sequence[Path]) -> RuleText:
    """What ``files`` say of the rule ``name``; the first of them that has it."""
    for file in files:
        if rule := _block(_text(file), name):
            return RuleText(rule, _part(_text(file.with_suffix(".md")), name))
    return RuleText()


@lru_cache(maxsize=256)
def _entry(block: str) -> RuleEntry | None:
    try:
        (found,) = yaml.safe_load(block) or (None,)
        return None if found is None else RuleEntry.model_validate(found)
    except (yaml.YAMLError, ValueError, TypeError, UserError):  # the alert process says what is wrong with it
        return None


@lru_cache(maxsize=512)
def _block(text: str, name: str) -> str:
    """The entry ``- alert: NAME`` of a YAML file, without the spaces before it."""
    lines = text.splitlines()
    begin = re.compile(rf"(\s*)-\s+alert:\s*([\"']?){re.escape(name)}\2\s*(#.*)?$")
    for place, line in enumerate(lines):
        if (found := begin.match(line)) is not None:
            deep = len(found[1])
            rest = lines[place + 1 :]
            inside = next((n for n, one in enumerate(rest) if one.strip() and _depth(one) <= deep), len(rest))
            return "\n".join(one[deep:] for one in (line, *rest[:inside])).rstrip()
    return ""


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _part(text: str, name: str) -> str:
    """Of a runbook the paragraphs that name the rule, and its steps, which are for all rules of the file."""
    paragraphs = [one for one in re.split(r"\n\s*\n", text) if not one.startswith("# ")]
    named = [one for one in paragraphs if f"**{name}**" in one]
    steps = [one for one in paragraphs if re.match(r"\d+\. ", one)]
    return "\n\n".join((*named, *steps)) if named else "\n\n".join(paragraphs)


def _text(file: Path) -> str:
    try:
        about = file.stat()
        return _read(file, about.st_mtime_ns, about.st_size)
    except OSError:
        return ""


@lru_cache(maxsize=64)
def _read(file: Path, changed: int, size: int) -> str:
    """The text of ``file`` as of when it was ``changed`` last."""
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(MOST)
