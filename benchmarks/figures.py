"""What every benchmark prints: one JSON object a line, each figure beside what it is compared with in the same run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure; ``baseline`` is what it is compared with, measured in the same run, in the same unit."""

    figure: str
    value: float
    unit: str
    baseline: float | None = None


def show(figure: Figure) -> None:
    """Print ``figure``."""
    print(json.dumps({name: _round(value) for name, value in asdict(figure).items()}), flush=True)


def _round(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
