"""Consumers: what they do at once, what they could, what of it is lost to retries, leaks and full buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dashboard.services.alerting import AlertCard
from dashboard.services.keys import QueueKey, Row
from dashboard.services.say import UNKNOWN, count, decimal, duration, listing, percent
from lake import prefetch

#: The rules that judge consumers.
GROUP = "consumers"
#: What is in flight beyond the law by less than this part of it is chance: windows are never exact.
_LEAK = 0.5
COLUMNS = (
    "Consumers",
    "At work · in flight",
    "Of its limit",
    "Empty polls",
    "Retries",
    "Processing, mean · p99",
    "Prefetch",
)


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """One consumer; ``cells`` by :data:`COLUMNS`, ``used`` is the part of its limit that is in flight, ``judged`` what
    rules say of it."""

    key: QueueKey
    cells: tuple[str, ...]
    used: float | None
    judged: tuple[AlertCard, ...]
    leaked: str


def judged(alerts: Iterable[AlertCard], states: Iterable[Row]) -> dict[QueueKey, tuple[AlertCard, ...]]:
    """What fires of the rules about consumers, by queue; ``states`` are the rows that ``alerts`` were made of."""
    mine = {row["rule"] for row in states if row["rule_group"] == GROUP}
    found: dict[QueueKey, tuple[AlertCard, ...]] = {}
    for card in alerts:
        if card.firing and card.queue is not None and card.title in mine:
            found[card.queue] = (*found.get(card.queue, ()), card)
    return found


def consumer_rows(
    rows: Iterable[Row], verdicts: Mapping[QueueKey, tuple[AlertCard, ...]], round_trip: float
) -> tuple[ConsumerRow, ...]:
    """The consumers in ``rows``, in their order; ``round_trip``: the network's, in seconds, for the prefetch advice."""
    return tuple(_row(row, verdicts.get(QueueKey.of(row), ()), round_trip) for row in rows)


def _row(row: Row, verdicts: tuple[AlertCard, ...], round_trip: float) -> ConsumerRow:
    limit, flying = row["in_flight_limit"], row["in_flight"]
    used = flying / limit if limit and flying is not None else None
    status = f" · {row['status']}" if row["status"] and row["status"] != "OK" else ""
    return ConsumerRow(
        key=QueueKey.of(row),
        cells=(
            f"{count(row['consumers'])}{status}",
            f"{decimal(row['littles_law'])} · {count(flying)}" if row["littles_law"] is not None else _alone(flying),
            UNKNOWN if used is None else f"{percent(used)} of {count(limit)}",
            percent(row["empty_poll_ratio"]),
            percent(row["retry_ratio"]),
            _processing(row),
            advice(row["prefetch"], row["mean_processing_seconds"], round_trip),
        ),
        used=used,
        judged=verdicts,
        leaked=_gap(row),
    )


def _alone(flying: int | None) -> str:
    return UNKNOWN if flying is None else f"? · {count(flying)}"


def _gap(row: Row) -> str:
    """What is in flight beyond what the pace of work explains: leaked slots, or messages that nobody works on."""
    flying, law = row["events_in_flight"], row["littles_law"]
    if flying is None or law is None or flying - law < max(1.0, _LEAK * law):
        return ""
    return f"{decimal(flying - law)} in flight beyond Little’s law"


def _processing(row: Row) -> str:
    mean, tail, timeout = (
        row["mean_processing_seconds"],
        row["p99_processing_seconds"],
        row["visibility_timeout_seconds"],
    )
    if mean is None:
        return UNKNOWN
    held = f" ({percent(tail / timeout)} of {duration(timeout)})" if timeout and tail is not None else ""
    return f"{duration(mean)} · {duration(tail)}{held}"


def advice(current: int | None, processing: float | None, round_trip: float) -> str:
    """What to prefetch instead: ``250 → 2``, or what it is where that is right; unknown where either is."""
    if not processing:
        return count(current) if current else UNKNOWN
    if not current:
        return f"{prefetch.needed(round_trip, processing):,} is enough"
    wanted = prefetch.recommended(current, round_trip, processing)
    if wanted.prefetch == current:
        return f"{current:,} ✓"
    held = prefetch.waiting(current, round_trip, processing) * processing
    return f"{current:,} → {wanted.prefetch:,}" + (
        f", holds back {duration(held)}" if held else ", waits for the network"
    )


def headline(
    found: Mapping[QueueKey, tuple[AlertCard, ...]], names: Mapping[QueueKey, str], consumers: int, ran: bool | None
) -> str:
    """What the page says first: whose consumers something is wrong with, by rules that ``ran`` (None: nobody knows)."""
    wrong = [names[key] for key in found]
    if wrong:
        shown = listing(wrong) if len(wrong) <= 3 else f"{', '.join(wrong[:2])} and {len(wrong) - 2} more"
        return f"Look at the consumers of {shown}"
    if not consumers:
        return "No consumer is known here"
    if ran is None:
        return "What rules find of the consumers is unknown"
    return "No rule finds fault with any consumer" if ran else "No rule has judged the consumers"
