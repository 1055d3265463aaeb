"""Plots as SVG, written by hand: no library, no script, legible on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from lab.stats import Estimate

#: Pixels: a row's height, where bars begin, how long the longest is, and room for its figure.
ROW, LEFT, WIDTH, RIGHT = 22, 110, 420, 110
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


def bars(rows: Sequence[tuple[str, Estimate]], unit: str) -> str:
    """Named means with their intervals as horizontal bars on a logarithmic scale.

    What is not a number is left out; without any row there is no plot ("").
    """
    shown = [
        (
            name,
            one.mean,
            one.low if math.isfinite(one.low) else one.mean,
            one.high if math.isfinite(one.high) else one.mean,
        )
        for name, one in rows
        if math.isfinite(one.mean) and one.mean > 0
    ]
    if not shown:
        return ""
    low = 10 ** math.floor(math.log10(min(value for _, value, _, _ in shown)))
    high = max(10 ** math.ceil(math.log10(max(end for _, _, _, end in shown))), 10 * low)

    def x(value: float) -> float:
        return LEFT + WIDTH * (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))

    parts, bottom = [], ROW * len(shown) + 4
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        at = x(10.0**power)
        parts.append(f'<line x1="{at:.1f}" y1="4" x2="{at:.1f}" y2="{bottom}" stroke="#999" stroke-width="0.5"/>')
        parts.append(_text(at, bottom + 14, f"{10.0**power:g}", "middle"))
    for number, (name, value, least, most) in enumerate(shown):
        top = 4 + ROW * number
        middle = top + ROW / 2
        parts.append(_text(LEFT - 6, middle + 4, name, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{top + 4}" width="{max(1.0, x(value) - LEFT):.1f}" height="{ROW - 8}" '
            f'fill="{COLOURS[0]}"/>'
        )
        start, end = x(least), x(most)
        parts.append(f'<line x1="{start:.1f}" y1="{middle}" x2="{end:.1f}" y2="{middle}" stroke="#bb5566"/>')
        parts.append(_text(end + 6, middle + 4, f"{value:.3g} {unit}", "start"))
    return _svg(LEFT + WIDTH + RIGHT, bottom + 20, parts)


def curves(named: Sequence[tuple[str, Sequence[float]]], unit: str, height: int = 160) -> str:
    """Series of one length, a value each second, as lines from 0."""
    most = max(max(values) for _, values in named)
    seconds = max(1, max(len(values) for _, values in named) - 1)
    parts = []
    for part in (0.0, 0.5, 1.0):
        y = 8 + height * (1 - part)
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}" stroke="#999" stroke-width="0.5"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{most * part:g} {unit}", "end"))
    for number, (name, values) in enumerate(named):
        points = " ".join(
            f"{LEFT + WIDTH * second / seconds:.1f},{8 + height * (1 - value / most):.1f}"
            for second, value in enumerate(values)
        )
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(_text(LEFT + WIDTH + 6, 20 + 16 * number, name, "start", colour))
    parts.append(_text(LEFT + WIDTH, height + 24, f"{seconds + 1} s", "end"))
    return _svg(LEFT + WIDTH + RIGHT, height + 32, parts)


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#777") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" '
    return head + f'font-size="12" width="{width:g}">\n' + "\n".join(parts) + "\n</svg>\n"
