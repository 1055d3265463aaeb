"""What Grafana's published models (grafana-foundation-sdk) say against a dashboard."""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tests.support.servers import require_server

_SDK = "grafana_foundation_sdk"


def faults(board: dict[str, Any]) -> list[str]:
    """Where ``board`` has what the models do not know, or not of that kind, each by its place."""
    if find_spec(_SDK) is None:
        require_server("the models of Grafana's dashboards are not installed: make setup")
    import_module(f"{_SDK}.cog.plugins").register_default_plugins()
    read = import_module(f"{_SDK}.models.dashboard").Dashboard.from_json(board)
    written = json.loads(import_module(f"{_SDK}.cog.encoder").JSONEncoder().encode(read))
    return [*_lost(board, written, ""), *_of_other_kinds(read, "")]


def _lost(told: Any, written: Any, where: str) -> Iterator[str]:
    """What models that have read it do not write again: they have no such field."""
    if isinstance(told, dict) and isinstance(written, dict):
        for name, value in told.items():
            if name in written:
                yield from _lost(value, written[name], f"{where}/{name}")
            else:
                yield f"{where}/{name} is unknown"
    elif isinstance(told, list) and isinstance(written, list) and len(told) == len(written):
        for place, (one, other) in enumerate(zip(told, written, strict=True)):
            yield from _lost(one, other, f"{where}/{place}")
    elif told != written:
        yield f"{where} is read as {written!r}"


def _of_other_kinds(model: Any, where: str) -> Iterator[str]:
    """Fields that hold what their declared kind does not allow."""
    if isinstance(model, list):
        for place, one in enumerate(model):
            yield from _of_other_kinds(one, f"{where}/{place}")
    elif type(model).__module__.startswith(_SDK) and not isinstance(model, enum.Enum):
        for name, kind in typing.get_type_hints(type(model)).items():
            value = getattr(model, name)
            if not _is_of(value, kind):
                yield f"{where}/{name} is {value!r}, and no {getattr(kind, '__name__', kind)}"
            yield from _of_other_kinds(value, f"{where}/{name}")


def _is_of(value: Any, kind: Any) -> bool:
    of, parts = typing.get_origin(kind), typing.get_args(kind)
    if of in (typing.Union, types.UnionType):
        return any(_is_of(value, part) for part in parts)
    if of is typing.Literal:
        return value in parts
    if of is list:
        return isinstance(value, list) and all(_is_of(one, parts[0]) for one in value)
    if of is dict:
        return isinstance(value, dict) and all(_is_of(one, parts[1]) for one in value.values())
    if not isinstance(kind, type) or kind is object:
        return True
    if issubclass(kind, enum.Enum):
        return value in {one.value for one in kind}
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)
