"""Which functions SQL may call: an allow-list, judged from the engines' own catalogues (``functions.toml``)."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from lake.errors import UserError

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of the functions of one engine.

    ``refused`` maps patterns to reasons; ``most_arguments`` bounds those whose further arguments are options.
    """

    allowed: frozenset[str]
    operators: frozenset[str]
    refused: dict[str, str]
    most_arguments: dict[str, int]

    def reason(self, name: str) -> str | None:
        """Why the function ``name`` was refused; None if it was not."""
        return next((why for pattern, why in self.refused.items() if fnmatchcase(name, pattern)), None)

    def judged(self, name: str) -> bool:
        """Whether anybody ever decided about the function ``name``."""
        return name in self.allowed or name in self.operators or self.reason(name) is not None

    def require(self, name: str, arguments: int | None = None) -> None:
        """Raises UserError unless the function ``name`` may be called, with so many arguments if that is known."""
        lowered = name.lower()
        if not _NAME.fullmatch(name) or lowered not in self.allowed:
            raise UserError(f"the function {name[:80]} is not allowed here", self._fix(lowered))
        most = self.most_arguments.get(lowered)
        if most is not None and arguments is not None and arguments > most:
            raise UserError(f"the function {lowered} is not allowed with options", f"give {most} arguments at most")

    def _fix(self, name: str) -> str:
        if (reason := self.reason(name)) is not None:
            return reason
        near = difflib.get_close_matches(name, self.allowed, n=1, cutoff=0.75)
        return f"did you mean {near[0]}?" if near else "Spark's manual of SQL lists its functions"


def is_allowed_function(name: str) -> bool:
    """Whether Spark's function or operator ``name`` may be called: it has no effects and reads nothing outside."""
    known = judgement("spark")
    return name in known.operators or (_NAME.fullmatch(name) is not None and name.lower() in known.allowed)


@cache
def judgement(engine: str) -> Judgement:
    """What is known of the functions of ``engine``: spark or duckdb."""
    content = tomllib.loads(resources.files("lake.sql").joinpath("functions.toml").read_text(encoding="utf-8"))[engine]
    return Judgement(
        frozenset(name.lower() for name in (*content["allowed"], *content["own"])),
        frozenset(content.get("operators", ())),
        {pattern.lower(): reason for reason, patterns in content["refused"].items() for pattern in patterns},
        content.get("most_arguments", {}),
    )
