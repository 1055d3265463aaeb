"""Commands load their parts when they run: what they ask of one is looked for here, as a type checker cannot see it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

_COMMANDS = sorted((Path(__file__).parents[2] / "sojourn" / "cli").glob("*.py"))


def _module(node: ast.AST) -> str | None:
    """The module of a call ``part("module")``."""
    match node:
        case ast.Call(func=ast.Name(id="part"), args=[ast.Constant(value=str(module))]):
            return module
    return None


def _assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that stand for a part, with its module."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pairs = [(name, value)]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = [
                    (name.id, value) for name, value in zip(names, values, strict=True) if isinstance(name, ast.Name)
                ]
            case _:
                continue
        yield from ((name, module) for name, value in pairs if (module := _module(value)) is not None)


def asked(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, attribute) of all that functions of ``tree`` ask of parts."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        parts = dict(_assigned(function))
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in parts:
                    yield parts[name], attribute
                case ast.Attribute(value=value, attr=attribute) if (module := _module(value)) is not None:
                    yield module, attribute


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda path: path.stem)
def test_what_a_command_asks_of_a_part_is_there(command: Path) -> None:
    missing = [
        f"{module}.{attribute}"
        for module, attribute in sorted(set(asked(ast.parse(command.read_text(encoding="utf-8")))))
        if not hasattr(importlib.import_module(module), attribute)
    ]
    assert missing == []


def test_a_name_that_moved_is_found() -> None:
    text = 'def f():\n    a, b = part("json"), part("ast")\n    c = part("os")\n    a.x; b.y(); c.z; part("re").w\n'
    assert set(asked(ast.parse(text))) == {("json", "x"), ("ast", "y"), ("os", "z"), ("re", "w")}
