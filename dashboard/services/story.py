"""What a chart shows, in a sentence: the conclusion above it, and the text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dashboard.services.say import UNKNOWN, count, decimal, duration, listing, percent, rate
from dashboard.services.series import OTHER, Curve, Span, unknown_at_first


def backlog(curves: Sequence[Curve], span: Span, noisy: Collection[str]) -> str:
    """``Now 1,240 messages, 12 at the start of the range. acme-7 (noisy) holds 79 % of it.``"""
    if not curves:
        return "No message was waiting in this range."
    now = sum(curve.last or 0.0 for curve in curves)
    sums = [sum(curve.values[place] or 0.0 for curve in curves) for place in range(len(span.seconds))]
    begin = unknown_at_first(curves[0]) % len(span.seconds)
    said = f"Now {count(now)}; {count(sums[begin])} at {span.instants[begin]:%H:%M}, at most {count(max(sums))}."
    largest = max((curve for curve in curves if curve.name != OTHER), key=lambda curve: curve.last or 0.0, default=None)
    if now > 0 and largest is not None and largest.last:
        who = f"{largest.name} (noisy)" if largest.name in noisy else largest.name
        said += f" {who} holds {percent(largest.last / now)} of it."
    return said


def ages(p50: Sequence[Curve], p99: Sequence[Curve]) -> str:
    """``Quiet tenants wait 40 ms at the median and 120 ms at p99; noisy ones 12 s and 31 s.``"""
    parts = []
    for who in ("quiet", "noisy"):
        median, tail = _newest(p50, who), _newest(p99, who)
        if median is not None or tail is not None:
            parts.append(f"{who} tenants {duration(median)} at the median, {duration(tail)} at p99")
    return f"Newest first attempts: {'; '.join(parts)}." if parts else "No first attempt in this range."


def depth(curve: Curve) -> str:
    """``The broker counts 12 now; at most 40 in this range.``"""
    known = [value for value in curve.values if value is not None]
    if not known:
        return f"The broker's own count is {UNKNOWN}."
    return f"The broker counts {count(known[-1])} now; at most {count(max(known))} in this range."


def rates(arrivals: Curve | None, leavers: Curve | None) -> str:
    """``20/s arrive, 12/s leave: the backlog grows by 8/s.``"""
    if arrivals is None or leavers is None or arrivals.last is None or leavers.last is None:
        return f"Rates are {UNKNOWN}."
    gain = arrivals.last - leavers.last
    trend = "grows" if gain > 0 else "shrinks"
    even = abs(gain) <= 0.02 * max(arrivals.last, leavers.last)
    change = "they keep pace" if even else f"the backlog {trend} by {rate(abs(gain))}"
    return f"{rate(arrivals.last)} arrive, {rate(leavers.last)} leave: {change}."


def concurrency(expected: float | None, measured: float | None, limit: float | None) -> str:
    """Little's law, the measurement, the limit, and what a gap between them means."""
    if expected is None:
        return f"Little's law is {UNKNOWN}: no attempt ended in the window. Measured in flight: {count(measured)}."
    parts = [f"Little's law expects {decimal(expected)} in flight", f"{count(measured)} are measured"]
    if limit:
        parts.append(f"the limit is {count(limit)}, {percent((measured or 0.0) / limit)} used")
    said = listing(parts)
    if measured is not None and measured > 2 * expected + 10:
        said += ". The gap suggests stuck messages, or consumers that died"
    return f"{said}."


def _newest(curves: Sequence[Curve], name: str) -> float | None:
    values = next((curve.values for curve in curves if curve.name == name), ())
    return next((value for value in reversed(values) if value is not None), None)
