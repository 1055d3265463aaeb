"""Plotly figures: one question each, units on every axis, and marks where alerts and actions happened."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.services.alerting import Happening
from dashboard.services.series import OTHER, Cells, Curve, Span
from dashboard.shared import shared
from dashboard.theme import ACTING, CALM, LOUD, MUTED
from lake.visible import visible

HEIGHT = 300
STORY_HEIGHT = 400
#: Figures that are kept, of each kind: those of the newest data that somebody looks at.
_KEPT = 32
#: The longest name; and the longest tenant's in a legend, which takes the picture's place where it is long.
NAME, LEGEND = 60, 24
_SHAPES = {True: "hv", False: "linear"}
_SIGNS = {"alert": ("▲", LOUD), "resolved": ("▽", MUTED), "action": ("◆", ACTING)}


@dataclass(frozen=True, slots=True)
class Line:
    """How a curve is drawn; dashes tell curves apart where colours cannot."""

    name: str
    color: str
    dash: str = "solid"
    width: float = 2.0
    step: bool = False


class Drawn(go.Figure):  # type: ignore[misc]  # plotly has no types
    """A figure that is drawn for many, and again and again: what Plotly makes of it, it makes once.

    From then on nobody may change it.
    """

    def to_dict(self) -> dict[str, Any]:
        """As Plotly's own; the same one each time."""
        made = self.__dict__.get("_made")
        if made is None:
            made = self._made = super().to_dict()
        return cast("dict[str, Any]", made)


@shared(_KEPT)
def backlog(span: Span, curves: Sequence[Curve], noisy: Collection[str], marks: Sequence[Happening]) -> go.Figure:
    """Backlog over time, stacked by tenant: the calm ones below, noisy ones on top, hatched."""
    figure = _figure(span, "messages", marks)
    figure.add_traces(_stack(span, curves, noisy))
    return figure


@shared(_KEPT)
def story(
    span: Span,
    curves: Sequence[Curve],
    noisy: Collection[str],
    ages: Sequence[tuple[Line, Curve]],
    target: tuple[float, str] | None,
    marks: Sequence[Happening],
) -> go.Figure:
    """One queue at one glance: backlog by tenant above, the age of first attempts against its target below."""
    figure = make_subplots(
        figure=Drawn(), rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.05, row_heights=[0.56, 0.44]
    )
    _lay_out(figure, span, "", marks)
    figure.update_layout(height=STORY_HEIGHT, hovermode="x", legend={"y": -0.1, "tracegroupgap": 0})
    figure.add_traces(_stack(span, curves, noisy), rows=1, cols=1)
    for line, curve in ages:
        figure.add_trace(_line(span, line, curve, "s"), row=2, col=1)
    figure.update_yaxes(title={"text": "messages", "font": {"size": 12}}, row=1, col=1)
    figure.update_yaxes(title={"text": "first attempt, s", "font": {"size": 12}}, row=2, col=1)
    if target is not None:
        _level(figure, *target, row=2, col=1)
    return figure


def _stack(span: Span, curves: Sequence[Curve], noisy: Collection[str]) -> list[go.Scatter]:
    traces = []
    ordered = [c for c in curves if c.name == OTHER]
    ordered += sorted((c for c in curves if c.name not in noisy and c.name != OTHER), key=lambda curve: curve.name)
    ordered += [c for c in curves if c.name in noisy]
    calm = iter(CALM * (1 + len(ordered) // len(CALM)))
    for curve in ordered:
        loud = curve.name in noisy
        color = LOUD if loud else MUTED if curve.name == OTHER else next(calm)
        known = sum(value is None for value in curve.values)  # unknown at the start; a stack would draw it as 0
        trace = go.Scatter(
            x=_times(span)[known:],
            y=curve.values[known:],
            name=shown_text(curve.name, LEGEND) + (" (noisy)" if loud else ""),
            stackgroup="backlog",
            mode="lines",
            line={"width": 1, "color": color, "shape": "hv"},
            fillcolor=_tint(color, 0.55 if loud else 0.4),
            fillpattern={"shape": "/", "size": 7, "solidity": 0.2, "bgcolor": _tint(color, 0.5), "fgcolor": color}
            if loud
            else None,
            hovertemplate="%{y:,.0f}",
        )
        traces.append(trace)
    return traces


@shared(_KEPT)
def lines(
    span: Span,
    curves: Sequence[tuple[Line, Curve]],
    unit: str,
    marks: Sequence[Happening],
    *,
    target: tuple[float, str] | None = None,
) -> go.Figure:
    """Curves over time; ``target`` is a level to compare them with."""
    figure = _figure(span, unit, marks)
    for line, curve in curves:
        figure.add_trace(_line(span, line, curve, unit))
    if target is not None:
        _level(figure, *target)
    return figure


#: Blue below the middle, orange above it, the further the stronger; faint ones let either ground through.
_WARMTH = (
    (0.0, 0.14, CALM[0]),
    (0.49, 0.85, CALM[0]),
    (0.51, 0.45, "#d9a03a"),
    (0.75, 0.95, LOUD),
    (1.0, 1.0, "#8f2f14"),
)
#: A heat map of waits reaches from so far below the target to so far above it, as powers of two.
_OCTAVES = 4
ROW_HEIGHT = 19


@shared(_KEPT)
def heat(
    span: Span,
    names: Sequence[str],
    values: Sequence[Sequence[float | None]],
    words: Sequence[Sequence[str]],
    *,
    target: float | None = None,
) -> go.Figure:
    """A line for each of ``names``, a cell for each bin: its value in warmth, its ``words`` where one points at it.

    With a ``target`` warmth is how far a value is from it, one step a doubling; else it is a part of the largest.
    """
    top = max((value for line in values for value in line if value is not None), default=0.0) or 1.0
    if target is None:
        shown = [[None if value is None else math.log1p(value) / math.log1p(top) for value in line] for line in values]
        ticks, low, high = ([0.0, 1.0], ["0", f"{top:,.0f}"]), 0.0, 1.0
    else:
        shown = [[None if value is None else _octaves(value, target) for value in line] for line in values]
        low, high = -float(_OCTAVES), float(_OCTAVES)
        ticks = ([low, 0.0, high], [f"≤ 1/{2**_OCTAVES}", "target", f"≥ {2**_OCTAVES}×"])
    figure = _figure(span, "", ())
    figure.add_trace(
        go.Heatmap(
            x=_times(span)[1:],
            y=[f"{place} {shown_text(name, NAME)}" for place, name in enumerate(names)],
            z=shown,
            zmin=low,
            zmax=high,
            text=words,
            colorscale=[[at, _tint(color, opacity)] for at, opacity, color in _WARMTH],
            colorbar={"thickness": 10, "tickvals": ticks[0], "ticktext": ticks[1], "outlinewidth": 0, "len": 0.9},
            hovertemplate=f"%{{x|%H:%M}} {span.instants[0].tzname()}, %{{text}}<extra></extra>",
            hoverongaps=False,
            xgap=1,
            ygap=1,
        )
    )
    figure.update_layout(height=heat_height(len(names)), hovermode="closest", showlegend=False)
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        tickvals=list(range(len(names))),
        ticktext=[shown_text(name, 28) for name in names],
        rangemode="normal",
        automargin=True,
        nticks=len(names),
    )
    return figure


def heat_height(lines: int) -> int:
    """The height in pixels of a heat map of so many lines."""
    return ROW_HEIGHT * lines + 70


@shared(_KEPT)
def ages(
    span: Span, cells: Cells | None, curves: Sequence[tuple[Line, Curve]], target: float, marks: Sequence[Happening]
) -> go.Figure:
    """How long first attempts waited: a map of how many in which range, on a logarithmic scale, with quantiles."""
    figure = _figure(span, "s", marks)
    low = 0.01
    if cells is not None:
        low = min(low, cells.edges[0])
        figure.add_trace(
            go.Heatmap(
                x=_times(span)[1:],
                y=cells.edges,
                z=[[math.log1p(count) if count else None for count in row] for row in cells.counts],
                text=[
                    [f"{count:,} waited {low:.3g} to {high:.3g} s" for count in row]
                    for row, (low, high) in zip(cells.counts, pairwise(cells.edges), strict=True)
                ],
                colorscale=[[0.0, _tint(CALM[0], 0.1)], [1.0, _tint(CALM[0], 0.75)]],
                showscale=False,
                hovertemplate="%{text}<extra></extra>",
                hoverongaps=False,
                name="first attempts",
            )
        )
    for line, curve in curves:
        shown = Curve(curve.name, tuple(None if value is None else max(value, low) for value in curve.values))
        figure.add_trace(_line(span, line, shown, "s"))
    line = Line(f"target {target:g} s", MUTED, "dash", 1)  # a level's words would not stand right on this scale
    figure.add_trace(_line(span, line, Curve("target", (target,) * len(span.seconds)), "s"))
    highest = max([2 * target, *(cells.edges[-1:] if cells is not None else ())])
    reach = [math.log10(low), math.log10(highest)]
    figure.update_yaxes(type="log", rangemode="normal", tickformat="~g", dtick=1, range=reach)
    figure.update_layout(hovermode="closest")
    return figure


def _octaves(value: float, target: float) -> float:
    """How many doublings ``value`` is above (below: negative) the ``target``, within the map's bounds."""
    return max(-_OCTAVES, min(_OCTAVES, math.log2(value / target))) if value > 0 else -_OCTAVES


def bars(span: Span, drawn: tuple[Line, Curve]) -> go.Figure:
    """A count for each bin as a bar; the curve has no value for the first, which holds what was before."""
    line, curve = drawn
    figure = _figure(span, "messages", ())
    hover = "%{y:,.0f} messages"
    figure.add_trace(
        go.Bar(
            x=_times(span)[1:],
            y=curve.values,
            name=shown_text(line.name),
            marker={"color": line.color},
            hovertemplate=hover,
        )
    )
    figure.update_layout(bargap=0.1)
    return figure


def _step(most: float) -> int:
    """Between some five ticks of an axis of whole things up to ``most``: 1, 2 or 5 times a power of ten."""
    power: int = 10 ** max(0, math.floor(math.log10(max(1.0, most / 5))))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if step * 6 > most)


def beside(figure: go.Figure, span: Span, drawn: tuple[Line, Curve]) -> None:
    """Add a curve of another size, with an axis of its own at the right."""
    line, curve = drawn
    figure.add_trace(_line(span, line, curve, "messages").update(yaxis="y2"))
    most = max((value for value in curve.values if value is not None), default=0.0)
    figure.update_layout(
        yaxis2={
            "title": {"text": line.name, "standoff": 8},
            "overlaying": "y",
            "side": "right",
            "rangemode": "tozero",
            "showgrid": False,
            "tick0": 0,
            "dtick": _step(most),
            "zeroline": False,
        }
    )


def _line(span: Span, line: Line, curve: Curve, unit: str) -> go.Scatter:
    sparse = sum(value is not None for value in curve.values) < 2
    return go.Scatter(
        x=_times(span),
        y=curve.values,
        name=shown_text(line.name, NAME),
        mode="markers" if sparse else "lines",
        connectgaps=False,
        line={"color": line.color, "dash": line.dash, "width": line.width, "shape": "hv" if line.step else "linear"},
        hovertemplate="%{y:,.3~g} " + unit,
    )


def _level(figure: go.Figure, level: float, words: str, **place: int) -> None:
    figure.add_hline(
        y=level,
        line={"color": MUTED, "dash": "dash", "width": 1},
        annotation={"text": shown_text(words), "font": {"size": 11, "color": MUTED}, "xanchor": "right"},
        annotation_position="top right",
        **place,
    )


def _figure(span: Span, unit: str, marks: Sequence[Happening]) -> go.Figure:
    figure = Drawn()
    _lay_out(figure, span, unit, marks)
    return figure


def _lay_out(figure: go.Figure, span: Span, unit: str, marks: Sequence[Happening]) -> None:
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 16, "b": 8},
        hovermode="x unified",
        legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "xanchor": "left", "font": {"size": 12}},
        showlegend=True,
        uirevision="kept",
    )
    times = _times(span)
    figure.update_xaxes(
        range=[times[0], times[-1]],
        hoverformat=f"%H:%M:%S {span.instants[0].tzname()}",
        tickformat="%H:%M:%S" if span.end - span.start <= 300 else "%H:%M",
        showgrid=False,
        zeroline=False,
        nticks=8,
    )
    figure.update_yaxes(title={"text": unit, "font": {"size": 12}}, rangemode="tozero", zeroline=False, nticks=5)
    for mark in _spread(span, marks):
        _mark(figure, mark, span)


def _spread(span: Span, marks: Sequence[Happening]) -> list[Happening]:
    """The marks inside the span; of those that would lie on one another the newest only."""
    width = (span.end - span.start) / 60
    kept: list[Happening] = []
    for mark in sorted((mark for mark in marks if span.holds(mark.at)), key=lambda mark: mark.at, reverse=True):
        if all(mark.kind != other.kind or (other.at - mark.at).total_seconds() >= width for other in kept):
            kept.append(mark)
    return kept


def _mark(figure: go.Figure, mark: Happening, span: Span) -> None:
    sign, color = _SIGNS[mark.kind]
    at = _naive(mark.at, span)
    figure.add_shape(
        type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"color": color, "width": 1, "dash": "dot"}
    )
    figure.add_annotation(
        x=at,
        y=1,
        yref="paper",
        yanchor="middle",
        text=sign,
        showarrow=False,
        font={"color": color, "size": 13},
        hovertext=shown_text(f"{mark.when} {mark.what}"),
    )


def shown_text(words: str, longest: int = 300) -> str:
    """``words`` for plotly, which reads links and a little other HTML in each text, names in legends included."""
    return visible(words, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@lru_cache(maxsize=64)
def _times(span: Span) -> tuple[str, ...]:
    """As texts: plotly would make them of instants each time that a figure is drawn."""
    return tuple(_naive(at, span).isoformat() for at in span.instants)


def _naive(at: datetime, span: Span) -> datetime:
    """Plotly draws what it is given: an instant without its zone stays the same in every browser."""
    return at.astimezone(span.zone).replace(tzinfo=None)


def _tint(color: str, opacity: float) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
