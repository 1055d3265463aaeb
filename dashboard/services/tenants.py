"""Tenants, each with its part in the story: who takes more than a fair share, and who waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from dashboard.services import series
from dashboard.services.keys import QueueKey, Row
from dashboard.services.overview import drained
from dashboard.services.say import UNKNOWN, age, count, decimal, duration, percent, rate
from dashboard.services.series import Span
from lake.histogram import bucket_value

#: A tenant's part, by the number that the question gives it; sign and tone stand beside the word.
PARTS = (("▲", "act", "noisy"), ("◆", "watch", "victim"), ("◆", "watch", "late"), ("✓", "fine", "in time"))
COLUMNS = (
    "Backlog",
    "In flight",
    "Oldest",
    "First attempt, p99",
    "In the system, p50 · p99",
    "In → out",
    "Work",
    "Drained",
    "Limit",
)


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant of one queue; ``cells`` by :data:`COLUMNS`, ``share`` is of its queue's backlog."""

    key: QueueKey
    tenant: str
    part: int
    share: float | None
    cells: tuple[str, ...]


def tenant_rows(
    rows: Iterable[Row], ages: Iterable[Row], limits: Iterable[Row], work: float | None, flowing: Set[QueueKey]
) -> tuple[TenantRow, ...]:
    """The tenants in ``rows``, in their order; ``work`` is what all together keep at work, and ``flowing`` are
    the queues in which what waits only passes through."""
    known = {(QueueKey.of(row), row["tenant"], row["kind"]): row for row in ages}
    held = {(row["broker"], row["queue"], row["tenant"]): row for row in limits}
    return tuple(_row(row, known, held, work, flows=QueueKey.of(row) in flowing) for row in rows)


def _row(
    row: Row,
    ages: Mapping[tuple[QueueKey, str, str], Row],
    limits: Mapping[tuple[str, str, str | None], Row],
    work: float | None,
    *,
    flows: bool,
) -> TenantRow:
    key, tenant = QueueKey.of(row), row["tenant"]
    first, whole = (ages.get((key, tenant, kind)) for kind in ("first_attempt", "completion"))
    held_by_all = row["queue_in_flight"]
    held = limits.get((key.broker, key.queue, tenant)) or limits.get((key.broker, key.queue, None))
    return TenantRow(
        key=key,
        tenant=tenant,
        part=row["place"],
        share=row["share"],
        cells=(
            _of_all(row["backlog"], row["share"]),
            _of_all(row["in_flight"], row["in_flight"] / held_by_all if row["in_flight"] and held_by_all else None),
            UNKNOWN if row["backlog"] is None else age(row["oldest_age_seconds"]),
            duration(first["p99_seconds"]) if first else "–",
            f"{duration(whole['p50_seconds'])} · {duration(whole['p99_seconds'])}" if whole else "–",
            f"{rate(row['arrival_rate'])} → {rate(row['completion_rate'])}",
            f"{decimal(row['work'])} · {percent(row['work'] / work)}" if row["work"] and work else "–",
            drained(row, flows=flows),
            rate(held["rate"]) if held else "–",
        ),
    )


def _of_all(messages: int | None, share: float | None) -> str:
    """So many messages, and what part that is of all in the queue, where it is any."""
    return f"{count(messages)} · {percent(share)}" if messages and share is not None else count(messages)


def headline(total: Row, queue: str | None) -> str:
    """What the page says first: who is noisy, and how many wait for it."""
    where = f" on {queue}" if queue else ""
    noisy, victims, late = total["noisy"], total["victims"], total["late"]
    if not total["tenants"]:
        return f"No tenant{where} has such a name"
    if noisy:
        who = f"{total['loudest']} is noisy" if noisy == 1 else f"{count(noisy)} tenants are noisy"
        them = "it" if noisy == 1 else "them"
        return f"{who}{where}" + (f", {count(victims)} wait{'s' if victims == 1 else ''} for {them}" if victims else "")
    if late:
        return f"{count(late)} of {count(total['tenants'])} tenants wait beyond the target{where}, none is noisy"
    return f"No tenant{where} is noisy, none waits beyond the target"


def sentence(total: Row) -> str:
    """How many there are, and what the noisy ones take of all work."""
    said = f"{count(total['tenants'])} tenant{'' if total['tenants'] == 1 else 's'}"
    if total["queues"] > 1:
        said += f" on {count(total['queues'])} queues"
    said += f", backlog {count(total['backlog'])}, {rate(total['arrival_rate'])} arrive"
    if total["noisy"] and total["work"] and total["noisy_work"] is not None:
        said += f"; the noisy take {percent(total['noisy_work'] / total['work'])} of the work"
    return f"{said}."


@dataclass(frozen=True, slots=True)
class Heat:
    """A value for each of ``names`` and bin, None where nothing is known; ``words`` say each."""

    names: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    words: tuple[tuple[str, ...], ...]


def waits(span: Span, cells: Iterable[Row], shown: Sequence[tuple[QueueKey, str, str]]) -> Heat:
    """The p99 of first attempts by bin, of those ``shown``: their queue, tenant and the name of their line."""
    found = {(QueueKey.of(row), row["tenant"], row["at"]): row for row in cells}
    values, words = [], []
    for key, tenant, _ in shown:
        rows = [found.get((key, tenant, second)) for second in span.seconds[1:]]
        values.append(tuple(None if row is None else bucket_value(row["index"]) for row in rows))
        words.append(
            tuple(
                "" if row is None else f"p99 {duration(bucket_value(row['index']))} of {count(row['attempts'])}"
                for row in rows
            )
        )
    return Heat(tuple(name for *_, name in shown), tuple(values), tuple(words))


def backlogs(span: Span, levels: Iterable[Row], shown: Sequence[tuple[QueueKey, str, str]]) -> Heat:
    """The backlog at the end of each bin, of those ``shown``."""
    found: dict[tuple[QueueKey, str], list[Row]] = {}
    for row in levels:
        found.setdefault((QueueKey.of(row), row["tenant"]), []).append(row)
    values: list[tuple[float | None, ...]] = []
    for key, tenant, _ in shown:
        curve = series.last_values(span, found.get((key, tenant), ()), "backlog")
        values.append(curve.values[1:] if curve else (None,) * (len(span.seconds) - 1))
    words = tuple(tuple("" if value is None else f"backlog {count(value)}" for value in line) for line in values)
    return Heat(tuple(name for *_, name in shown), tuple(values), words)
