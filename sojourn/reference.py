"""The reference pages of the command line and of `sojourn.toml`, generated from what declares them.

``python -m sojourn.reference cli`` and ``python -m sojourn.reference settings`` print one page each.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click

from actuators import registry
from actuators.base import ActuatorSettings
from actuators.movers import registry as movers
from actuators.movers.base import MoverSettings
from alerts.control.depth import registry as depth
from alerts.control.depth.base import DepthSettings
from alerts.settings import AlertSettings
from brokers.tenants import Rule
from collectors.settings import CollectSettings
from dashboard.settings import DashboardSettings
from lake.definitions import Definitions
from sojourn.cli.main import app
from sojourn.settings import LakeSettings
from spark_analytics.settings import AnalyzeSettings

_SECTIONS: dict[str, type[BaseModel]] = {
    "lake": LakeSettings,
    "definitions": Definitions,
    "collect": CollectSettings,
    "analyze": AnalyzeSettings,
    "alert": AlertSettings,
    "dashboard": DashboardSettings,
}
#: What stands for every kind that a registry names.
_OPEN: dict[type[BaseModel], Callable[[], Sequence[type[BaseModel]]]] = {
    ActuatorSettings: registry.KINDS.all_settings,
    DepthSettings: depth.KINDS.all_settings,
    MoverSettings: movers.KINDS.all_settings,
}
_INTRO = """# Settings

Every key of `sojourn.toml`, generated (`make docs`) from the models that read it. A key that is not here is an error
that names the nearest one. Each can be overridden by an environment variable of its path in capitals with two
underscores between the steps, list positions as numbers: `SOJOURN_ALERT__PORT=9099`,
`SOJOURN_COLLECT__BROKERS__0__URL=nats://mq:4222`.

A *secret* is `{ env = "NAME" }` or `{ file = "/path" }`: it is read when it is needed, and never printed. Durations are
seconds, or texts as `30s`, `5m`, `4h`. What a table has in common with one above it stands there.
"""
_CLI_INTRO = """# Command line

Generated (`make docs`) from the commands themselves. Exit codes: 0 done, 1 a failure of ours, 2 yours to fix (one line
says what and how), 130 interrupted. `SOJOURN_DEBUG=1` shows tracebacks.
"""
_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true / false",
    Path: "path",
    timedelta: "duration",
    types.NoneType: "",
}


def cli() -> str:
    """The page of the command line."""
    command = typer.main.get_command(app)
    told = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="sojourn"), name="sojourn")
    return _CLI_INTRO + told.partition("\n")[2].rstrip() + "\n"


def settings() -> str:
    """The page of the settings: a table for each model, where it is met first."""
    told: dict[type[BaseModel], str] = {}
    pages = [_INTRO]
    pending: list[tuple[str, type[BaseModel], bool]] = [(name, model, False) for name, model in _SECTIONS.items()]
    while pending:
        path, model, many = pending.pop(0)
        if model in told:
            continue
        told[model] = path
        pages.append(_table(path, model, many))
        pending[:0] = [
            (f"{path}.{name}", below, _is_list(field.annotation))
            for name, field in model.model_fields.items()
            for below in _models(field.annotation)
            if below.__name__ != "Secret"
        ]
    return "\n".join(pages)


def _table(path: str, model: type[BaseModel], many: bool) -> str:
    kind = model.model_fields.get("kind")
    kinds = typing.get_args(kind.annotation) if kind is not None else ()
    only = f" of kind `{kinds[0]}`" if len(kinds) == 1 else ""
    head = f"## `{'[[' if many else '['}{path}{']]' if many else ']'}`{only}\n\n{_first_paragraph(model)}\n"
    rows = [_row(name, field) for name, field in sorted(model.model_fields.items(), key=_required_first)]
    return "\n".join([head, "| key | type | default | |", "|---|---|---|---|", *rows, ""])


def _row(name: str, field: FieldInfo) -> str:
    default = "**required**" if field.is_required() else _literal(field.get_default(call_default_factory=True))
    cells = (f"`{field.alias or name}`", _type(field.annotation), default, field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _required_first(each: tuple[str, FieldInfo]) -> tuple[bool, bool]:
    name, field = each
    return name != "kind", not field.is_required()


def _first_paragraph(model: type[BaseModel]) -> str:
    text = re.sub(r":(?:class|mod|func|meth|attr|data):`~?([^`]*)`", r"`\1`", (model.__doc__ or "").strip())
    return " ".join(text.split("\n\n")[0].replace("``", "`").split())


def _literal(value: Any) -> str:
    """A default as TOML has it; an empty cell for none, and for what tables of their own tell."""
    match value:
        case None | () | [] | "" | BaseModel():
            return ""
        case {} if not value:
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case Enum():
            return f'`"{value.value}"`'
        case timedelta():
            return f"`{value.total_seconds():g}s`"
        case int() | float():
            return f"`{value:_}`" if isinstance(value, int) else f"`{value:g}`"
        case str() | Path() | Rule():
            return f'`"{value}"`'
        case tuple() | list() | frozenset():
            inner = [_literal(one).strip("`") for one in (sorted(value) if isinstance(value, frozenset) else value)]
            return f"`[{', '.join(inner)}]`" if all(inner) else ""
        case _:
            return ""


def _type(kind: Any) -> str:
    """What a person writes there."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is typing.Annotated:
        return _type(inner[0])
    if origin in (tuple, list, set, frozenset):
        return f"list of {_type(inner[0])}"
    if origin is not None and isinstance(origin, type) and issubclass(origin, dict | typing.Mapping):
        return f"table: {_type(inner[0])} → {_type(inner[1])}"
    if origin is typing.Union or origin is types.UnionType:
        return " or ".join(dict.fromkeys(text for text in map(_type, inner) if text))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "secret" if kind.__name__ == "Secret" else "table"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    return _WORDS.get(kind, "text")


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from _OPEN.get(kind, lambda: [kind])()
    for inner in typing.get_args(kind):
        yield from _models(inner)


def _is_list(kind: Any) -> bool:
    return typing.get_origin(kind) in (tuple, list) or any(_is_list(inner) for inner in typing.get_args(kind))


if __name__ == "__main__":
    sys.stdout.write({"cli": cli, "settings": settings}[sys.argv[1]]())
