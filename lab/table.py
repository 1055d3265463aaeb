"""Figures and tables as the lab's commands and pages print them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.stats import Estimate, short


def said(found: Estimate | float) -> str:
    """``found``; a dash where there is nothing to tell."""
    if isinstance(found, float):
        return short(found)
    return "–" if math.isnan(found.mean) else str(found)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """``lines`` in columns, the first to the left, the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ""
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        text += "  ".join(cells).rstrip() + "\n"
    return text
