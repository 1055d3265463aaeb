"""How long to wait before something that failed is tried again: the one rule, for clients, collectors and rules."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

Span = TypeVar("Span", float, timedelta)
#: Further it is not doubled: 65,536 times the first pause is longer than any that is meant.
_MOST_DOUBLINGS = 16


def doubled(failures: int, first: Span, longest: Span) -> Span:
    """How long to wait after so many ``failures`` in a row: ``first`` after one, twice as long after each more.

    Never longer than ``longest``. Whoever is one of many that fail together spreads it by a random factor of its own
    (Brooker, "Exponential Backoff And Jitter", AWS 2015).
    """
    return min(longest, first * (1 << min(max(0, failures - 1), _MOST_DOUBLINGS)))
