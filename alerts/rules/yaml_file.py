"""YAML as people write it by hand, read strictly: a key twice is a mistake; each mistake has its line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lake.errors import UserError

MAX_BYTES = 4 << 20
#: Nodes of a file once its aliases are written out; a few lines of aliases of aliases make billions.
MOST_NODES = 200_000


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content, and where in it each thing stands."""

    path: Path
    content: Any
    root: yaml.Node | None

    def place(self, steps: Sequence[int | str]) -> str:
        """File, line and column of what ``steps`` lead to: of the key, or of what stands at a list's position."""
        node, mark = self.root, self.root.start_mark if self.root else None
        for step in steps:
            following = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == step:
                        following, mark = value, key.start_mark
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                following = node.value[step]
                mark = following.start_mark
            if following is None:
                break
            node = following
        return f"{self.path}{_place(mark)}"


def read(path: Path) -> Document:
    """The one document in the file at ``path``; UserError for what cannot be read, with line and column."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is larger than {MAX_BYTES >> 20} MiB", "split it into several files")
        loader = _Strict(path.read_text(encoding="utf-8"))
        try:
            root = loader.get_single_node()
            if root is None:
                return Document(path, None, None)
            _check_size(root)
            return Document(path, loader.construct_document(root), root)
        finally:
            loader.dispose()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "correct the path or its permissions") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text", "save it as UTF-8") from error
    except RecursionError:
        raise UserError(f"{path}: not valid YAML: it is nested too deeply", "write it flatter") from None
    except _Mistake as error:
        raise UserError(f"{path}{_place(error.problem_mark)}: {error.problem}", "correct it there") from None
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        place = _place(getattr(error, "problem_mark", None))
        raise UserError(
            f"{path}{place}: not valid YAML: {problem}", "correct the indentation or quoting there"
        ) from error


class _Mistake(yaml.MarkedYAMLError):
    """YAML that cannot be meant."""


class _Strict(yaml.SafeLoader):
    """Reads what SafeLoader reads, but nothing that is there twice, and no text that cannot be stored."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, yaml.Mark] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                raise _mistake(f"the key {name!r} is there twice, first in line {seen[name].line + 1}", key)
            if name is not None and name != "<<":
                seen[name] = key.start_mark
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:  # a day that no calendar has, a number of 5,000 digits
            raise _mistake(f"cannot be read: {error}", node) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            raise _mistake("a text holds half a character: write \\U and eight digits", node)
        return value


def _check_size(root: yaml.Node) -> None:
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known == 0:
            raise _mistake("it holds itself", node)
        if known is not None:
            return known
        sizes[id(node)] = 0
        children = (
            [one for pair in node.value for one in pair]
            if isinstance(node, yaml.MappingNode)
            else node.value
            if isinstance(node, yaml.SequenceNode)
            else ()
        )
        sizes[id(node)] = total = 1 + sum(map(size, children))
        if total > MOST_NODES:
            raise _mistake(f"it has more than {MOST_NODES} entries, aliases written out", node)
        return total

    size(root)


def _mistake(problem: str, node: yaml.Node) -> _Mistake:
    return _Mistake(problem=problem, problem_mark=node.start_mark)


def _place(mark: yaml.Mark | None) -> str:
    return f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
