"""Pictures small enough for a line of text, as HTML: a strip of minutes, and lines in a table's cell.

Lines are images with their words beside them, since HTML that Streamlit is given may hold no SVG; their source is made
of numbers and of our own colours alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import pairwise
from urllib.parse import quote

from dashboard.services.series import Curve
from dashboard.services.trends import LEVEL_WORDS, Trend, flow_words, level_words
from dashboard.shared import shared
from dashboard.theme import CALM, LOUD, MUTED

_WIDTH, _HEIGHT = 120, 22
#: Pictures that are kept, of each kind: a few kilobytes each.
_KEPT = 1000
#: Of the levels of minutes (:data:`dashboard.services.trends.LEVELS`) the height of a bar and how it is drawn.
_BARS = (
    (5, f"stroke='{CALM[0]}' opacity='.55'"),
    (9, f"stroke='{CALM[0]}'"),
    (15, "stroke='#d9a03a'"),
    (21, f"stroke='{LOUD}' stroke-dasharray='3 .7'"),
)


@shared(_KEPT)
def strip(trend: Trend) -> str:
    """Minutes as bars: the higher (and the warmer) the further from the target; each tells its value on hover."""
    bars = "".join(
        f'<i class="{"none" if minute.level is None else f"l{minute.level}"}" title="{html.escape(minute.words)}"></i>'
        for minute in trend.strip
    )
    return f'<div class="sj-strip" role="img" aria-label="{html.escape(trend.said)}">{bars}</div>'


@shared(_KEPT)
def hour(trend: Trend | None) -> str:
    """The same for one row of many, as one picture: thousands of elements would be drawn anew with each renewal."""
    if trend is None or not trend.strip:
        return ""
    step = _WIDTH / len(trend.strip)
    bars = []
    for level, (height, stroke) in enumerate(_BARS):
        places = (place for place, minute in enumerate(trend.strip) if minute.level == level)
        path = "".join(f"M{step * (place + 0.5):g} {_HEIGHT}v-{height}" for place in places)
        bars.append(f"<path d='{path}' stroke-width='{step * 0.8:.1f}' {stroke}/>" if path else "")
    return _image("".join(bars), trend.said, "hour")


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
        shown = '<div class="sj-strip"></div>'
        return f'<div class="sj">{shown}<p class="dim sj-ends">reading the last hour …</p></div>'
    if trend.strip:
        shown, said = strip(trend), "p99 of first-attempt age, by the minute"
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
    return _image("".join(_line(curve, color, dash, most or 1.0, area=area) for curve, color, dash in lines), said, css)


def _image(drawn: str, said: str, css: str) -> str:
    """``drawn``, SVG with single quotes, above its ground; what an address needs of it is written as it is."""
    ground = f"<path d='M0 {_HEIGHT - 0.5}H{_WIDTH}' stroke='{MUTED}' stroke-width='.6' opacity='.5'/>"
    box = f"viewBox='0 0 {_WIDTH} {_HEIGHT}' preserveAspectRatio='none' fill='none'"
    source = f"<svg xmlns='http://www.w3.org/2000/svg' {box}>{drawn}{ground}</svg>"
    words = html.escape(said)
    shown = quote(source, safe=" /:='.-")
    return f'<img class="sj-spark {css}" src="data:image/svg+xml,{shown}" alt="{words}" title="{words}">'


def _line(curve: Curve, color: str, dash: str, most: float, *, area: bool) -> str:
    step = _WIDTH / max(1, len(curve.values) - 1)
    drawn = []
    for piece in _pieces(curve):
        points = [(round(place * step), round(1.5 + (_HEIGHT - 3) * (1 - value / most))) for place, value in piece]
        way = _way(points)
        if area:
            drawn.append(
                f"<path d='M{points[0][0]} {_HEIGHT}V{points[0][1]}{way}V{_HEIGHT}' fill='{color}' opacity='.28'/>"
            )
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        drawn.append(f"<path d='M{points[0][0]} {points[0][1]}{way}' stroke='{color}' stroke-width='1.4'{dashed}/>")
    return "".join(drawn)


def _way(points: Iterable[tuple[int, int]]) -> str:
    """From the first of ``points`` to the others, each by its distance from the one before: of few signs."""
    steps = ((x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(points))
    return "".join(f"h{x}" if y == 0 else f"l{x}{y}" if y < 0 else f"l{x} {y}" for x, y in steps)


def _pieces(curve: Curve) -> list[list[tuple[int, float]]]:
    """The parts of a curve between which nothing is known, as places and values."""
    pieces: list[list[tuple[int, float]]] = [[]]
    for place, value in enumerate(curve.values):
        if value is not None:
            pieces[-1].append((place, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]
