"""When rules would have fired, drawn: a strip of characters for a terminal, an SVG file for everybody else."""

from __future__ import annotations

from datetime import datetime, timedelta
from html import escape

from alerts.backtest.run import Backtest, Outcome

#: Columns of a strip, from nothing to all of the time.
WIDTH, _STEPS = 48, " ▁▂▃▄▅▆▇█"
_COLOURS = {"critical": "#c62828", "error": "#c62828", "warning": "#ef8c00"}
_ROW, _LEFT, _ACROSS, _TOP = 22, 260, 900, 34


def strip(found: Backtest, outcome: Outcome, width: int = WIDTH) -> str:
    """How much of each part of the time any alert of the rule fired."""
    part = (found.end - found.begin) / width
    filled = [timedelta(0)] * width
    for began, over in spans(found, outcome):
        for place in range(int((began - found.begin) / part), width):
            first = found.begin + place * part
            if first >= over:
                break
            filled[place] += min(over, first + part) - max(began, first)
    # A moment is seen, too.
    shares = [min(1.0, length / part) for length in filled]
    return "".join(_STEPS[max(1, round(share * (len(_STEPS) - 1)))] if share > 0 else _STEPS[0] for share in shares)


def spans(found: Backtest, outcome: Outcome) -> list[tuple[datetime, datetime]]:
    """When at least one alert of the rule fired, in order; one that was over at once counts for a step."""
    merged: list[tuple[datetime, datetime]] = []
    ends = sorted((one.began, max(one.over or found.end, one.began + found.step)) for one in outcome.episodes)
    for began, over in ends:
        over = min(over, found.end)
        if merged and began <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], over)
        else:
            merged.append((began, over))
    return merged


def svg(found: Backtest) -> str:
    """A row for each rule that fired, its firings as bars, and a line where messages began to be dead-lettered."""
    fired = sorted((one for one in found.outcomes if one.episodes), key=lambda one: (-len(one.episodes), one.rule.name))
    height = _TOP + _ROW * max(1, len(fired)) + 30
    scale = _ACROSS / (found.end - found.begin).total_seconds()

    def x(at: datetime) -> float:
        return round(_LEFT + (at - found.begin).total_seconds() * scale, 2)

    size = f'width="{_LEFT + _ACROSS + 20}" height="{height}" viewBox="0 0 {_LEFT + _ACROSS + 20} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="18">{found.begin:%Y-%m-%d %H:%M} UTC</text>',
        f'<text x="{_LEFT + _ACROSS}" y="18" text-anchor="end">{found.end:%Y-%m-%d %H:%M} UTC</text>',
    ]
    for number, outcome in enumerate(fired):
        y = _TOP + number * _ROW
        pages = f"{len(outcome.episodes)} pages"
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(outcome.rule.name)} ({pages})</text>'
        )
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{_ACROSS}" height="{_ROW - 4}" fill="#f3f3f3"/>')
        colour = _COLOURS.get(outcome.rule.labels.get("severity", ""), "#1e6fb8")
        for began, over in spans(found, outcome):
            width = max(1.0, round(x(over) - x(began), 2))
            parts.append(f'<rect x="{x(began)}" y="{y}" width="{width}" height="{_ROW - 4}" fill="{colour}"/>')
    bottom = height - 26
    for dead in found.dead_letters:
        what = escape(f"{dead.broker} {dead.queue}: dead letters from {dead.at:%Y-%m-%d %H:%M:%S} UTC on")
        line = f'<line x1="{x(dead.at)}" x2="{x(dead.at)}" y1="{_TOP - 6}" y2="{bottom}" stroke="#000000"'
        parts.append(f"{line}><title>{what}</title></line>")
    parts.append(f'<text x="{_LEFT}" y="{height - 8}">lines: messages began to be dead-lettered</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
