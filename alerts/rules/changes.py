"""Changes to rules that somebody wants to try before writing them down: ``--set share=0.8``, ``--set Deep.for=5m``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from alerts.objectives import SloEntry
from alerts.rules.model import RuleEntry
from lake.errors import UserError

E = TypeVar("E", bound=BaseModel)
_SETTING = re.compile(r"(?:(\w+)\.)?(\w+)=(.*)", re.ASCII | re.DOTALL)
_OF_RULES = ("for", "keep_firing_for")
_OF_SLOS = (*_OF_RULES, "within", "objective", "minimum")
#: A number of the lake's definitions, for what rules themselves say of it; views keep the lake's.
TARGET = "target_seconds"


class Changes:
    """What is to be set, and what of it has found something to be set in."""

    def __init__(self, settings: Iterable[str] = ()) -> None:
        self._wanted: dict[tuple[str | None, str], str] = {}
        self._known: set[str] = {TARGET}
        self._used: set[tuple[str | None, str]] = set()
        for setting in settings:
            match = _SETTING.fullmatch(setting)
            if match is None:
                raise UserError(f"{setting!r} sets nothing", "write NAME=VALUE or RULE.NAME=VALUE")
            self._wanted[match[1], match[2]] = match[3].strip()

    def target_seconds(self) -> float | None:
        """The target that is set; None where none is."""
        text = self._wanted.get((None, TARGET))
        if text is None:
            return None
        self._used.add((None, TARGET))
        try:
            return float(text)
        except ValueError:
            raise UserError(f"{TARGET} is a number of seconds, not {text!r}", f"write {TARGET}=30") from None

    def rule(self, entry: RuleEntry) -> RuleEntry:
        """``entry`` with what is set of it."""
        changed = {name: value for name in _OF_RULES if (value := self._of(entry.alert, name)) is not None}
        thresholds = {name: value for name in entry.thresholds if (value := self._of(entry.alert, name)) is not None}
        if not changed and not thresholds:
            return entry
        return _with(entry, {**changed, "thresholds": {**entry.thresholds, **thresholds}}, entry.alert)

    def slo(self, entry: SloEntry) -> SloEntry:
        """The same of an objective."""
        changed = {name: value for name in _OF_SLOS if (value := self._of(entry.slo, name)) is not None}
        return _with(entry, changed, entry.slo) if changed else entry

    def finish(self) -> None:
        """UserError for what nothing was set by."""
        for key in self._wanted:
            if key not in self._used:
                near = difflib.get_close_matches(key[1], self._known, n=1)
                named = ".".join(part for part in key if part)
                hint = f"is it {near[0]!r}?" if near else f"there are {', '.join(sorted(self._known))}"
                raise UserError(f"no rule has anything called {named!r}", hint)

    def _of(self, rule: str, name: str) -> str | None:
        self._known.add(name)
        for key in ((rule, name), (None, name)):
            if key in self._wanted:
                self._used.add(key)
                return self._wanted[key]
        return None


def _with(entry: E, changed: Mapping[str, object], name: str) -> E:
    try:
        return type(entry).model_validate({**entry.model_dump(by_alias=True), **changed})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{name}: {where}: {first['msg'].removeprefix('Value error, ')}", "set another value") from None
