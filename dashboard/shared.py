"""What many viewers look at is drawn once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def shared(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep what a pure function has made of its last ``most`` different arguments; nobody may change what it gives.

    Arguments may be lists and sets of what can be hashed.
    """

    def of(draw: Callable[P, T]) -> Callable[P, T]:
        kept = lru_cache(most)(draw)

        @wraps(draw)
        def drawn(*told: P.args, **more: P.kwargs) -> T:
            named = cast("dict[str, Any]", {name: _fixed(value) for name, value in more.items()})
            return kept(*map(_fixed, told), **named)

        return drawn

    return of


def _fixed(value: Any) -> Hashable:
    """``value`` as something that can be a key."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_fixed, value))
    return frozenset(value) if isinstance(value, (set, frozenset)) else cast("Hashable", value)
