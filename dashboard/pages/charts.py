"""What charts of several pages share: their tools, and the curves of ages with the target they are held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard.figures import Line
from dashboard.pages import markup
from dashboard.repository import Repository
from dashboard.services import series
from dashboard.services.keys import QueueKey
from dashboard.services.series import Curve, Span
from dashboard.theme import CALM, LOUD

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
Drawn = list[tuple[Line, Curve]]
#: Where a chart's heading stands, and where the chart.
Spots = tuple[Any, Any]


def age_lines(
    lake: Repository, key: QueueKey, span: Span, noisy: Sequence[str]
) -> tuple[Drawn, tuple[Curve, ...], tuple[Curve, ...]]:
    """Age of first attempt of quiet and of noisy tenants, as lines; then the curves of p50 and of p99."""
    cells = lake.first_attempt_cells(key, span, noisy)
    p50, p99 = (series.quantiles(span, cells, q, by="who") for q in (0.5, 0.99))
    drawn = []
    for who, color, dash in (("quiet", CALM[0], "solid"), ("noisy", LOUD, "dash")):
        for name, width, curves in (("p50", 1.2, p50), ("p99", 2.2, p99)):
            curve = series.named(curves, who)
            if curve is not None:
                drawn.append((Line(f"{who} {name}", color, dash, width), curve))
    return drawn, p50, p99


def reference(lake: Repository, most: float) -> tuple[float, str] | None:
    """The target as a level to draw, unless all is so far below it that it would flatten the rest."""
    target = lake.definitions.target_seconds
    return (target, f"target {target:g} s") if most > target / 3 else None


def highest(drawn: Drawn) -> float:
    """The largest value of several curves."""
    return max((value for _, curve in drawn for value in curve.values if value is not None), default=0.0)


def pending(title: str, why: str, height: int, spots: Spots = (st, st)) -> None:
    """Keep the place of a chart of ``height`` pixels: two elements as it is, since between any two there is a gap."""
    spots[0].html(markup.section(title, why))
    spots[1].html(markup.reserved(height))
