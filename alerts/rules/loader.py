"""Reads rule files, and says exactly what is wrong with those that cannot be read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from alerts.rules.expression import checked
from alerts.rules.model import GroupEntry, Rule, RuleEntry, RuleFile
from alerts.rules.templates import compiled
from lake.errors import UserError

M = TypeVar("M", bound=BaseModel)

BUILTIN = Path(str(files("alerts.rules"))) / "builtin"
TEST_SUFFIX = "_test.yml"
MAX_BYTES = 4 << 20


def load_rules(paths: Sequence[Path], *, builtin: bool) -> tuple[Rule, ...]:
    """The rules of all files in ``paths`` (files, or folders of ``*.yml``), the built-in ones first."""
    rules: dict[tuple[str, str], Rule] = {}
    for file in rule_files(([BUILTIN] if builtin else []) + list(paths)):
        for rule in load_file(file):
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
            raise UserError(f"there is no rule file {path}", "correct the path under rules in [alert]")
    return found


def load_file(path: Path) -> list[Rule]:
    """The rules of one file, checked. UserError names file, rule and what to mend."""
    content = validated(path, RuleFile, {(): RuleFile, ("groups",): GroupEntry, ("groups", "rules"): RuleEntry})
    return [_rule(path, group, entry) for group in content.groups for entry in group.rules]


def validated(path: Path, model: type[M], levels: Mapping[tuple[str, ...], type[BaseModel]]) -> M:
    """The YAML file at ``path`` as a ``model``; ``levels``: which model stands at which keys, to name the nearest."""
    content = _yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _explained(path, content, error, levels) from None


def _yaml(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than {MAX_BYTES >> 20} MiB", "split it into several files")
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "correct the path or its permissions") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text", "save it as UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise UserError(
            f"{path}{where}: not valid YAML: {problem}", "correct the indentation or quoting there"
        ) from error


def _explained(
    path: Path, content: Any, error: ValidationError, levels: Mapping[tuple[str, ...], type[BaseModel]]
) -> UserError:
    first = error.errors()[0]
    loc = first["loc"]
    where = f"{path}: {_named(content, loc)}" if content is not None else f"{path} is empty: "
    if first["type"] == "extra_forbidden":
        level = levels.get(tuple(str(part) for part in loc[:-1] if isinstance(part, str)))
        known = [field.alias or name for name, field in level.model_fields.items()] if level else []
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        mend = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
        return UserError(f"{where}unknown key {loc[-1]!r}", mend)
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
            name = here.get("alert") or here.get("name")
            names.append(str(name) if name else f"number {part + 1}")
    return f"{' / '.join(names)}: " if names else ""


def _rule(path: Path, group: GroupEntry, entry: RuleEntry) -> Rule:
    try:
        tables = checked(entry.expr)
        for text in entry.annotations.values():
            compiled(text)
    except UserError as error:
        raise UserError(f"{path}: {group.name} / {entry.alert}: {error.what}", error.mend) from error
    return Rule(
        group=group.name,
        name=entry.alert,
        expr=entry.expr.strip().rstrip(";"),
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
        source=str(path),
    )
