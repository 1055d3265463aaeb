"""The language of templates, cut down to what fills a text in: every template ends, soon and with a short text.

What a template may hold is a list of jinja2's nodes, filters, tests and methods, checked before it runs. That bounds
what it costs, too: it cannot call itself, so the work is one step a node, times the turns of the loops around it, which
are counted; no value that a node makes is longer than LONGEST_TEXT.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

from jinja2 import ChainableUndefined, TemplateRuntimeError, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: Characters of a template, and of what it or a part of it may become.
LONGEST_TEMPLATE, LONGEST_TEXT = 8_192, 8_192
#: Nodes of loops' bodies that one rendering may pass through.
MOST_STEPS = 20_000
#: How deep a template's nodes may be nested.
DEEPEST = 60
#: Bits of a whole number, and entries of a list that is shown.
_MOST_BITS, _MOST_ENTRIES = 256, 1_000

_STATEMENTS = (nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign)
_EXPRESSIONS = (
    *(nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Getattr, nodes.Getitem),
    *(nodes.Slice, nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Keyword, nodes.Concat),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
)
#: Methods that a template may call: none makes more than it was given.
_METHODS = frozenset(
    {"items", "keys", "values", "get", "startswith", "endswith", "strip", "lower", "upper", "isoformat"}
)
_TESTS = (
    *("defined", "undefined", "none", "number", "string", "boolean", "true", "false", "mapping", "sequence"),
    *("eq", "ne", "lt", "le", "gt", "ge", "==", "!=", "<", "<=", ">", ">=", "equalto", "in", "odd", "even"),
)
_COUNTED, _JOINED = "\0counted", "\0joined"  # no template can write these names


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles templates over the names ``names``, with ``filters`` beside jinja2's harmless ones."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, names: Iterable[str], filters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(undefined=ChainableUndefined, autoescape=False, optimized=False, finalize=_shown)
        self._names = sorted(names)
        self.globals.clear()
        self.filters = {**_FILTERS, **{name: _filter(function) for name, function in filters.items()}}
        self.tests = {name: self.tests[name] for name in _TESTS}
        self._known_filters = sorted(self.filters)
        self.filters |= {_COUNTED: _counted, _JOINED: _joined}

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        self._check(source)
        _count_loops(source)
        return super()._generate(source, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """``left operator right`` for numbers, instants and texts, where the result stays small."""
        if isinstance(left, str) and isinstance(right, str) and operator == "+":
            return _bounded(left + right if len(left) + len(right) <= LONGEST_TEXT else None)
        if isinstance(left, Undefined) or isinstance(right, Undefined):
            return super().call_binop(context, operator, left, right)
        if not (isinstance(left, _QUANTITIES) and isinstance(right, _QUANTITIES)):
            raise TemplateRuntimeError(f"{operator} is for numbers, not for {_kind(left)} and {_kind(right)}")
        if operator == "**":
            if isinstance(left, date | timedelta) or isinstance(right, date | timedelta):
                raise TemplateRuntimeError("** is for numbers")
            left, right = float(left), float(right)  # of whole numbers the result could be of any length
        return _bounded(super().call_binop(context, operator, left, right))

    def _check(self, template: nodes.Template) -> None:
        waiting: list[tuple[nodes.Node, int]] = [(template, 0)]
        while waiting:
            node, depth = waiting.pop()
            if depth > DEEPEST:
                raise TemplateSyntaxError("it is nested too deeply", node.lineno)
            self._check_node(node)
            waiting += [(child, depth + 1) for child in node.iter_child_nodes()]
        undeclared = find_undeclared_variables(template) - {*self._names}
        for name in template.find_all(nodes.Name):
            if name.name in undeclared:
                raise TemplateSyntaxError(_unknown("name", name.name, self._names), name.lineno)

    def _check_node(self, node: nodes.Node) -> None:
        if not isinstance(node, _STATEMENTS + _EXPRESSIONS):
            what = type(node).__name__.lower()
            raise TemplateSyntaxError(
                f"{what!r} is not allowed: a template has texts, expressions, if, for and set", node.lineno
            )
        if isinstance(node, nodes.For) and node.recursive:
            raise TemplateSyntaxError("a loop cannot be recursive", node.lineno)
        if isinstance(node, nodes.Assign) and not isinstance(node.target, nodes.Name):
            raise TemplateSyntaxError("set takes one name", node.lineno)
        if isinstance(node, nodes.Call):
            method = node.node.attr if isinstance(node.node, nodes.Getattr) else None
            if method not in _METHODS or node.dyn_args is not None or node.dyn_kwargs is not None:
                known = ", ".join(sorted(_METHODS))
                raise TemplateSyntaxError(f"only the methods {known} can be called", node.lineno)
        if isinstance(node, nodes.Filter) and node.name not in self._known_filters:
            raise TemplateSyntaxError(_unknown("filter", node.name, self._known_filters), node.lineno)
        if isinstance(node, nodes.Test) and node.name not in _TESTS:
            raise TemplateSyntaxError(_unknown("test", node.name, sorted(_TESTS)), node.lineno)


def rendered(template: Any, values: Mapping[str, object]) -> str:
    """The text of ``template``, which a :class:`Sandbox` compiled. Raises what it raises, and for too long a text."""
    text, length = [], 0
    for piece in template.generate(**values):
        length += len(piece)
        if length > LONGEST_TEXT:
            raise TemplateRuntimeError(f"the text is longer than {LONGEST_TEXT} characters")
        text.append(piece)
    # A lone surrogate, written with a backslash, can be neither stored nor sent.
    return "".join(text).encode("utf-8", "replace").decode()


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown {what} {name!r}, " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")


def _count_loops(template: nodes.Template) -> None:
    """Have each loop count its turns, weighed with the size of its body, and each ``~`` the length of its text."""
    for loop in list(template.find_all(nodes.For)):
        size = nodes.Const(sum(1 for _ in loop.find_all(nodes.Node)))
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [size], [], None, None, lineno=loop.lineno)
    for node in list(template.find_all(nodes.Node)):
        for field, value in list(node.iter_fields()):
            if isinstance(value, nodes.Concat):
                setattr(node, field, _wrapped(value))
            elif isinstance(value, list):
                value[:] = [_wrapped(one) if isinstance(one, nodes.Concat) else one for one in value]
    if template.environment is not None:
        template.set_environment(template.environment)


def _wrapped(node: nodes.Concat) -> nodes.Filter:
    return nodes.Filter(nodes.List(node.nodes), _JOINED, [], [], None, None, lineno=node.lineno)


@pass_context
def _counted(context: Context, entries: Iterable[Any], size: int) -> Iterator[Any]:
    steps = context.parent.setdefault("\0steps", count())
    for entry in entries:
        for _ in range(size):
            if next(steps) >= MOST_STEPS:
                raise TemplateRuntimeError("its loops do not end soon enough")
        yield entry


def _bounded(value: Any) -> Any:
    if value is None or (isinstance(value, str) and len(value) > LONGEST_TEXT):
        raise TemplateRuntimeError(f"a text is longer than {LONGEST_TEXT} characters")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise TemplateRuntimeError(f"a number has more than {_MOST_BITS} bits")
    return value


@pass_context
def _joined(_: Context, values: Iterable[Any]) -> str:
    return _join(map(_shown, values))


def _shown(value: Any) -> Any:
    if isinstance(value, list | tuple | dict | set | bytes) and len(value) > _MOST_ENTRIES:
        raise TemplateRuntimeError(f"{_kind(value)} of {len(value)} entries is too long to be shown")
    return value


def _kind(value: object) -> str:
    return type(value).__name__


def _filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a filter whose result is bounded, and which is never run while a template is compiled."""

    @pass_context
    def bounded(_: Context, *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result if result is None else _bounded(result)

    return bounded


def _default(value: Any, other: Any = "", when_false: bool = False) -> Any:
    return other if isinstance(value, Undefined) or (when_false and not value) else value


def _join(values: Iterable[Any], between: str = "") -> str:
    text, length = [], 0
    for value in values:
        text.append(str(value))
        length += len(text[-1]) + len(between)
        if length > LONGEST_TEXT:
            return _bounded(None)  # type: ignore[no-any-return]
    return between.join(text)


def _replace(text: str, old: str, new: str) -> str:
    text = str(text)
    if not old or len(text) + text.count(old) * len(new) > 2 * LONGEST_TEXT:
        return _bounded(None)  # type: ignore[no-any-return]
    return text.replace(old, new)


def _round(value: float, digits: int = 0) -> float:
    if not isinstance(digits, int) or abs(digits) > 20:
        raise TemplateRuntimeError("round takes at most 20 digits")
    return round(value, digits)


def _truncate(text: str, length: int = 255, end: str = "…") -> str:
    text = str(text)
    return text if len(text) <= length else text[: max(0, length - len(end))] + end


def _float(value: Any, other: float = 0.0) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return other


def _int(value: Any, other: int = 0) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return other


_QUANTITIES = (int, float, Decimal, date, datetime, timedelta)
_PLAIN: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "capitalize": lambda text: str(text).capitalize(),
    "count": len,
    "d": _default,
    "default": _default,
    "first": lambda values: next(iter(values), ""),
    "float": _float,
    "int": _int,
    "join": _join,
    "last": lambda values: values[-1] if values else "",
    "length": len,
    "lower": lambda text: str(text).lower(),
    "max": max,
    "min": min,
    "replace": _replace,
    "round": _round,
    "sort": sorted,
    "string": str,
    "title": lambda text: str(text).title(),
    "trim": lambda text: str(text).strip(),
    "truncate": _truncate,
    "upper": lambda text: str(text).upper(),
}
_FILTERS = {name: _filter(function) for name, function in _PLAIN.items()}
