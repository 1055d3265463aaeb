"""Reads rule files, and says exactly what is wrong with those that cannot be read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from alerts.objectives import BurnWindow, SloEntry, rules_of
from alerts.rules.changes import Changes
from alerts.rules.expression import check_labels, checked, names_parameter, with_thresholds
from alerts.rules.file import GroupEntry, RuleFile
from alerts.rules.model import Rule, RuleEntry
from alerts.rules.templates import compiled
from alerts.rules.yaml_file import Document, read
from lake.errors import UserError

M = TypeVar("M", bound=BaseModel)

BUILTIN = Path(str(files("alerts.rules"))) / "builtin"
#: The group of built-in rules that are there for policies that act on alerts which still pend.
EARLY = "tenants_early"
#: Rule files that are shipped to be named under rules in [alert], or copied.
OPTIONAL = BUILTIN.with_name("optional")
TEST_SUFFIX = "_test.yml"


def load_rules(
    paths: Sequence[Path], *, builtin: bool, actions: Collection[str] | None = None, changes: Changes | None = None
) -> tuple[Rule, ...]:
    """The rules of all files in ``paths`` (files, or folders of ``*.yml``), the built-in ones first.

    ``actions``: the policies that rules may name; None = any. The built-in rules may name one that was taken out.
    ``changes``: what is to be tried instead of what the files say.
    """
    rules: dict[tuple[str, str], Rule] = {}
    shipped = rule_files([BUILTIN]) if builtin else []
    for file in [*shipped, *rule_files(paths)]:
        for rule in load_file(file, None if file in shipped else actions, changes):
            if (other := rules.get(rule.key)) is not None:
                raise UserError(
                    f"{file}: rule {rule.name} of group {rule.group} is already in {other.source}",
                    "rename one of them: group and name identify a rule",
                )
            rules[rule.key] = rule
    return tuple(rules.values())


def rule_files(paths: Iterable[Path]) -> list[Path]:
    """``paths`` with each folder replaced by its rule files, unit tests left out. UserError for what is not there."""
    found: list[Path] = []
    for path in paths:
        path = path.expanduser()
        if path.is_dir():
            inside = sorted([*path.glob("*.yml"), *path.glob("*.yaml")])
            found += [file for file in inside if not file.name.endswith((TEST_SUFFIX, "_test.yaml"))]
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(
                f"there is no rule file {path}", "correct the path, in the command or under rules in [alert]"
            )
    return found


def load_file(path: Path, actions: Collection[str] | None = None, changes: Changes | None = None) -> list[Rule]:
    """The rules of one file, checked, their actions against ``actions`` too. UserError names file, place and rule."""
    document = read(path)
    levels: dict[tuple[str, ...], type[BaseModel]] = {
        (): RuleFile,
        ("groups",): GroupEntry,
        ("groups", "rules"): RuleEntry,
        ("groups", "slos"): SloEntry,
        ("groups", "slos", "windows"): BurnWindow,
    }
    content = _validated(document, RuleFile, levels)
    changes = changes or Changes()
    rules: list[Rule] = []
    for i, group in enumerate(content.groups):
        rules += [
            _rule(document, ("groups", i, "rules", j), group, changes.rule(entry), actions)
            for j, entry in enumerate(group.rules)
        ]
        for j, slo in enumerate(group.slos):
            place = ("groups", i, "slos", j)
            if group.interval is None:
                raise UserError(
                    f"{document.place(place)}: {group.name} / {slo.slo}: an SLO reads days of history, and its "
                    "group has no interval",
                    "add interval: 30s to the group",
                )
            rules += [_rule(document, place, group, entry, actions) for entry in rules_of(changes.slo(slo))]
    return rules


def load_objectives(paths: Sequence[Path]) -> tuple[SloEntry, ...]:
    """The objectives of all files in ``paths``, as they stand there. UserError for a file that cannot be read."""
    files = [_validated(read(path), RuleFile, {(): RuleFile}) for path in rule_files(paths)]
    return tuple(slo for file in files for group in file.groups for slo in group.slos)


def validated(path: Path, model: type[M], levels: Mapping[tuple[str, ...], type[BaseModel]]) -> M:
    """The YAML file at ``path`` as a ``model``; ``levels``: which model stands at which keys, to name the nearest."""
    return _validated(read(path), model, levels)


def _validated(document: Document, model: type[M], levels: Mapping[tuple[str, ...], type[BaseModel]]) -> M:
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        raise _explained(document, error, levels) from None


def _explained(
    document: Document, error: ValidationError, levels: Mapping[tuple[str, ...], type[BaseModel]]
) -> UserError:
    errors = error.errors(include_url=False, include_input=False)
    # A misspelt key often leaves another one missing: the misspelling is what to fix.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    loc, content = first["loc"], document.content
    where = f"{document.place(loc)}: {_named(content, loc)}" if content is not None else f"{document.path} is empty: "
    if first["type"] == "extra_forbidden":
        level = levels.get(tuple(str(part) for part in loc[:-1] if isinstance(part, str)))
        known = [field.alias or name for name, field in level.model_fields.items()] if level else []
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
        return UserError(f"{where}unknown key {loc[-1]!r}", fix)
    key = ".".join(str(part) for part in loc if isinstance(part, str)) or "the file"
    if first["type"] == "missing":
        return UserError(f"{where}{loc[-1]!r} is missing", f"add {loc[-1]}:")
    message = first["msg"].removeprefix("Value error, ")
    return UserError(f"{where}{key}: {message}", "correct it")


def _named(content: Any, loc: tuple[int | str, ...]) -> str:
    """The names of the group, rule or test that ``loc`` leads through, for people who do not count from zero."""
    names, here = [], content
    for part in loc:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(part, int) and isinstance(here, dict):
            name = here.get("alert") or here.get("slo") or here.get("name")
            names.append(str(name) if name else f"number {part + 1}")
    return f"{' / '.join(names)}: " if names else ""


def _rule(
    document: Document,
    place: tuple[int | str, ...],
    group: GroupEntry,
    entry: RuleEntry,
    actions: Collection[str] | None,
) -> Rule:
    here = place
    try:
        here = (*place, "expr")
        elsewhere = {name for name in entry.thresholds if entry.resolve and names_parameter(entry.resolve, name)}
        mine = {
            name: value
            for name, value in entry.thresholds.items()
            if name not in elsewhere or names_parameter(entry.expr, name)
        }
        expr = with_thresholds(entry.expr, mine).strip().rstrip(";")
        tables = checked(expr)
        resolve = None
        if entry.resolve is not None:
            here = (*place, "resolve")
            theirs = {name: entry.thresholds[name] for name in elsewhere}
            resolve = with_thresholds(entry.resolve, theirs).strip().rstrip(";")
            tables |= checked(resolve)
            check_labels(expr, resolve)
        for name, text in entry.annotations.items():
            here = (*place, "annotations", name)
            compiled(text)
        here = (*place, "actions")
        for action in entry.actions:
            _check_action(action, actions)
    except UserError as error:
        raise UserError(f"{document.place(here)}: {group.name} / {entry.alert}: {error.what}", error.fix) from error
    return Rule(
        group=group.name,
        name=entry.alert,
        expr=expr,
        hold=entry.hold,
        keep_firing_for=entry.keep_firing_for,
        labels={**group.labels, **entry.labels},
        annotations=entry.annotations,
        no_data=entry.no_data,
        actions=entry.actions,
        interval=group.interval,
        query_offset=group.query_offset,
        limit=group.limit,
        tables=tables,
        source=str(document.path),
        resolve=resolve,
    )


def _check_action(action: str, known: Collection[str] | None) -> None:
    if known is not None and action not in known:
        near = difflib.get_close_matches(action, known, n=1)
        fix = f"is it {near[0]!r}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
        raise UserError(f"no policy is called {action!r}", f"{fix}; policies stand under [[alert.control.policies]]")
