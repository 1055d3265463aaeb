"""Pictures small enough for a line of text, as HTML: a strip of minutes, and lines in a table's cell.

Lines are images with their words beside them, since HTML that Streamlit is given may hold no SVG; their source is made
of numbers and of our own colours alone.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from urllib.parse import quote

from dashboard.services.series import Curve
from dashboard.services.trends import LEVEL_WORDS, Minute, Trend, flow_words, level_words
from dashboard.shared import shared
from dashboard.theme import CALM, MUTED

_WIDTH, _HEIGHT = 120, 22
#: Pictures that are kept, of each kind: a few kilobytes each.
_KEPT = 1000


@shared(_KEPT)
def strip(minutes: Sequence[Minute], said: str, *, tall: bool = False) -> str:
    """Minutes as bars: the higher (and the warmer) the further from the target; each tells its value on hover."""
    bars = "".join(
        f'<i class="{"none" if minute.level is None else f"l{minute.level}"}" title="{html.escape(minute.words)}"></i>'
        for minute in minutes
    )
    return f'<div class="sj-strip{" tall" if tall else ""}" role="img" aria-label="{html.escape(said)}">{bars}</div>'


def legend() -> str:
    """What the heights and colours of strips mean, in words."""
    keys = "".join(
        f'<span><i class="sj-key l{place}"></i>{html.escape(words)}</span>' for place, words in enumerate(LEVEL_WORDS)
    )
    what = "Last hour, p99 of first-attempt age each minute:"
    return f'<div class="sj"><p class="dim sj-legend">{what}{keys}</p></div>'


def card(trend: Trend | None) -> str:
    """A queue's last hour on its card: the strip, or the broker's own depth where events tell nothing."""
    if trend is None:
        shown = '<div class="sj-strip tall"></div>'
        return f'<div class="sj">{shown}<p class="dim sj-ends">reading the last hour …</p></div>'
    if trend.strip:
        shown, said = strip(trend.strip, trend.said, tall=True), "p99 of first-attempt age, by the minute"
    elif trend.depth is not None:
        said = level_words(trend.depth, "the broker's own count")
        shown = _picture([(trend.depth, CALM[1], "")], said, area=True, css="wide")
    else:
        shown, said = "", "Nothing of the last hour is known."
    ends = f"<span>−60 min</span><span>{html.escape(said)}</span><span>now</span>" if shown else html.escape(said)
    return f'<div class="sj">{shown}<p class="dim sj-ends">{ends}</p></div>'


@shared(_KEPT)
def backlog(trend: Trend | None) -> str:
    """The line of a queue's backlog; of the broker's own depth, dotted below, where that is all there is."""
    if trend is None:
        return ""
    if trend.backlog is not None:
        return _picture([(trend.backlog, CALM[0], "")], level_words(trend.backlog, "backlog"), area=True)
    if trend.depth is not None:
        said = level_words(trend.depth, "the broker's own count")
        return _picture([(trend.depth, CALM[1], "")], said, area=True)
    return ""


@shared(_KEPT)
def flow(trend: Trend | None) -> str:
    """Arrivals as a line, departures dashed, on one scale."""
    if trend is None or trend.arrivals is None or trend.leavers is None:
        return ""
    lines = [(trend.arrivals, CALM[0], ""), (trend.leavers, CALM[3], "4 2")]
    return _picture(lines, f"{flow_words(trend)} (dashed)")


@shared(_KEPT)
def line(curve: Curve, said: str) -> str:
    """One curve above its ground, told by ``said``."""
    return _picture([(curve, CALM[0], "")], said, area=True)


def _picture(lines: Sequence[tuple[Curve, str, str]], said: str, *, area: bool = False, css: str = "") -> str:
    most = max((value for curve, _, _ in lines for value in curve.values if value is not None), default=0.0)
    drawn = "".join(_line(curve, color, dash, most or 1.0, area=area) for curve, color, dash in lines)
    source = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
        f'<path d="M0 {_HEIGHT - 0.5}H{_WIDTH}" stroke="{MUTED}" stroke-width=".6" opacity=".5"/>{drawn}</svg>'
    )
    words = html.escape(said)
    return f'<img class="sj-spark {css}" src="data:image/svg+xml,{quote(source)}" alt="{words}" title="{words}">'


def _line(curve: Curve, color: str, dash: str, most: float, *, area: bool) -> str:
    step = _WIDTH / max(1, len(curve.values) - 1)
    drawn = []
    for piece in _pieces(curve):
        points = [(place * step, 1.5 + (_HEIGHT - 3) * (1 - value / most)) for place, value in piece]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if area:
            closed = f"{path}L{points[-1][0]:.1f} {_HEIGHT}L{points[0][0]:.1f} {_HEIGHT}Z"
            drawn.append(f'<path d="{closed}" fill="{color}" opacity=".28"/>')
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        drawn.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.4"{dashed}/>')
    return "".join(drawn)


def _pieces(curve: Curve) -> list[list[tuple[int, float]]]:
    """The parts of a curve between which nothing is known, as places and values."""
    pieces: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(curve.values):
        if value is not None:
            pieces[-1].append((place, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]
