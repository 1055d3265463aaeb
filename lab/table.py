"""Figures and tables as the lab's commands and pages print them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.stats import Estimate, short

_GAP = "  "


def said(found: Estimate | float) -> str:
    """``found``; a dash where there is nothing to tell."""
    if isinstance(found, float):
        return short(found)
    return "–" if math.isnan(found.mean) else str(found)


def aligned(lines: Sequence[Sequence[str]], width: int | None = None) -> str:
    """``lines`` in columns, the first to the left, the others to the right.

    What is wider than ``width`` characters comes as several tables, each with the first column again.
    """
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(_table(lines, widths, columns) for columns in _fitting(widths, width))


def _fitting(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """The columns but the first, in as few parts as fit beside the first: one at least in each."""
    parts: list[list[int]] = [[]]
    taken = widths[0]
    for column, wide in enumerate(widths[1:], 1):
        if parts[-1] and width is not None and taken + len(_GAP) + wide > width:
            parts.append([])
            taken = widths[0]
        parts[-1].append(column)
        taken += len(_GAP) + wide
    return parts


def _table(lines: Sequence[Sequence[str]], widths: Sequence[int], columns: Sequence[int]) -> str:
    rows = ([line[0].ljust(widths[0]), *(line[column].rjust(widths[column]) for column in columns)] for line in lines)
    return "".join(_GAP.join(cells).rstrip() + "\n" for cells in rows)
