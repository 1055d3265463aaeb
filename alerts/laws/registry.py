"""The laws that policies may choose: a name in the settings → where it is. Adding one is a file and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from importlib import import_module
from typing import Any

from alerts.laws.law import Law

#: Judged by how long quiet tenants wait: :mod:`alerts.laws.throttle`.
SHARES = {
    "aimd": "adapts the limit while the alert lasts",
    "rate_limit": "keeps it",
    "inverse_backlog": "lowers it in proportion to the quiet tenants' oldest age",
}
#: Judged by a signal of their own: name → module and class.
LAWS = {
    "output_rate": ("alerts.laws.output_rate", "OutputRate"),
    "publishing": ("alerts.laws.publishing", "Publishing"),
    "permits": ("alerts.laws.permits", "Permits"),
    "client_throttle": ("alerts.laws.client_throttle", "ClientThrottle"),
    "concurrency": ("alerts.laws.concurrency", "Concurrency"),
    "gradient": ("alerts.laws.concurrency", "Gradient"),
    "prefetch": ("alerts.laws.prefetch", "Prefetch"),
    "codel": ("alerts.laws.codel", "CoDel"),
    "squelch": ("alerts.laws.squelch", "Squelch"),
}


def names() -> list[str]:
    """All that a policy's ``law`` may be."""
    return [*SHARES, *LAWS]


def law_class(name: str) -> type[Any]:
    """The class of a law of :data:`LAWS`."""
    module, wanted = LAWS[name]
    found: type[Any] = getattr(import_module(module), wanted)
    return found


def options_of(name: str) -> tuple[Field[Any], ...]:
    """The options of a law; those of :data:`SHARES` have none but the policy's own keys."""
    return fields(law_class(name)) if name in LAWS else ()


def make(name: str, options: Mapping[str, Any]) -> Law | None:
    """The law of that name with these options; None for one of :data:`SHARES`. ValueError says what is wrong."""
    if name not in names():
        raise ValueError(f"there is no law {name!r}: {_near(name, names())}")
    known = {one.name: one for one in options_of(name)}
    for key in options:
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}: {_near(key, list(known))}")
    values = {key: _number(name, known[key], value) for key, value in options.items()}
    for key, one in known.items():
        if key not in values and one.default is MISSING:
            raise ValueError(f"{name} needs the option {key!r}: {one.metadata['says']}")
    if name in SHARES:
        return None
    try:
        found: Law = law_class(name)(**values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return found


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none'}"


def _number(law: str, one: Field[Any], value: Any) -> float:
    unit = f" in {one.metadata['unit']}" if one.metadata["unit"] else ""
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{law}: {one.name} is {value!r}, and must be a number{unit}") from None
