"""Figures of the page Lab: what each way looked like over time, and how the ways compare."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.figures import NAME, shown_text
from dashboard.services.lab import Course, Spread
from dashboard.theme import CALM, LOUD, MUTED

HEIGHT = 430
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
#: The least age on a logarithmic scale, in seconds.
_LEAST = 0.01


def over_time(courses: Sequence[Course], target: float, measured: tuple[float | None, float | None]) -> go.Figure:
    """The oldest age of the quiet tenants above, the backlog below, a line for each way; the first does nothing."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.58, 0.42])
    for place, course in enumerate(courses):
        name = shown_text(course.name, NAME)
        color = LOUD if place == 0 else CALM[(place - 1) % len(CALM)]
        dash = "solid" if place == 0 else _DASHES[place % len(_DASHES)]
        line = {"color": color, "dash": dash, "width": 2.6 if place == 0 else 1.8}
        ages = [max(age, _LEAST) for age in course.ages]
        figure.add_trace(
            go.Scatter(
                x=course.minutes,
                y=ages,
                name=name,
                legendgroup=name,
                line=line,
                hovertemplate="%{y:.3~g} s",
                mode="lines",
            ),
            row=1,
            col=1,
        )
        figure.add_trace(
            go.Scatter(
                x=course.minutes,
                y=course.backlogs,
                name=name,
                legendgroup=name,
                showlegend=False,
                line=line,
                hovertemplate="%{y:,.0f} messages",
                mode="lines",
            ),
            row=2,
            col=1,
        )
    words = f"target {target:g} s"
    figure.add_hline(
        y=target,
        row=1,
        col=1,
        line={"color": MUTED, "dash": "dash", "width": 1},
        annotation={"text": words, "font": {"size": 11, "color": MUTED}},
        annotation_position="top left",
    )
    last = max((course.minutes[-1] for course in courses if course.minutes), default=1.0)
    begin, end = measured
    if begin or (end is not None and end / 60 < last):
        until = last if end is None else min(last, end / 60)
        figure.add_vrect(x0=(begin or 0.0) / 60, x1=until, fillcolor=MUTED, opacity=0.12, line_width=0)
    figure.update_yaxes(
        type="log", dtick=1, tickformat="~g", title={"text": "quiet, oldest, s", "font": {"size": 12}}, row=1, col=1
    )
    figure.update_yaxes(title={"text": "backlog", "font": {"size": 12}}, rangemode="tozero", nticks=4, row=2, col=1)
    figure.update_xaxes(showgrid=False, zeroline=False, range=[0, last])
    figure.update_xaxes(title={"text": "minutes", "font": {"size": 12}}, row=2, col=1)
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 16, "b": 8},
        hovermode="x",
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 12}},
        uirevision="kept",
    )
    return figure


def compared(spreads: Sequence[Spread], nothing: str) -> go.Figure:
    """The p99 of each way with its interval, the best at the top: quiet tenants are dots, noisy ones open diamonds."""
    names = [shown_text(one.name, 28) for one in spreads]
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=[max(one.quiet, _LEAST) for one in spreads],
            y=names,
            error_x={
                "type": "data",
                "array": [one.high - one.quiet for one in spreads],
                "arrayminus": [one.quiet - max(one.low, _LEAST) for one in spreads],
                "thickness": 1.4,
                "width": 4,
            },
            mode="markers",
            name="quiet tenants",
            marker={"size": 10, "color": [LOUD if one.name == nothing else CALM[0] for one in spreads]},
            hovertemplate="%{x:.3~g} s<extra>quiet</extra>",
        )
    )
    apart = [one for one in spreads if one.noisy is not None]
    if apart:
        figure.add_trace(
            go.Scatter(
                x=[max(one.noisy or 0.0, _LEAST) for one in apart],
                y=[shown_text(one.name, 28) for one in apart],
                mode="markers",
                name="noisy tenants",
                marker={"size": 9, "symbol": "diamond-open", "color": CALM[1], "line": {"width": 2}},
                hovertemplate="%{x:.3~g} s<extra>noisy</extra>",
            )
        )
    figure.update_xaxes(
        type="log", dtick=1, tickformat="~g", title={"text": "p99 of first-attempt age, s", "font": {"size": 12}}
    )
    figure.update_yaxes(autorange="reversed", automargin=True, categoryorder="array", categoryarray=names)
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 16, "b": 8},
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 12}},
    )
    return figure
