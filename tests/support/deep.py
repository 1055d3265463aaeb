"""How long a test tries: for a moment each time, and with ``--deep`` for as long as what is promised was tried."""

from __future__ import annotations

from typing import Final


class _Chosen:
    """What the run was started with; ``tests/conftest.py`` writes it before any test is imported."""

    deep = False


CHOSEN: Final = _Chosen()


def examples(few: int, many: int) -> int:
    """``few`` of something, ``many`` in a deep run; for decorators too."""
    return many if CHOSEN.deep else few
