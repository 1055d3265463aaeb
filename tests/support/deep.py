"""How long a test tries: for a moment each time, and with ``--deep`` for as long as what is promised was tried."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Final


class _Chosen:
    """What the run was started with; ``tests/conftest.py`` writes it before any test is imported."""

    deep = False


CHOSEN: Final = _Chosen()


def examples(few: int, many: int) -> int:
    """``few`` of something, ``many`` in a deep run; for decorators too."""
    return many if CHOSEN.deep else few


def combinations(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Each of the ``values`` at least once, with some of the others; in a deep run each with each."""
    if CHOSEN.deep:
        return list(product(*values))
    return [tuple(one[number % len(one)] for one in values) for number in range(max(map(len, values)))]
