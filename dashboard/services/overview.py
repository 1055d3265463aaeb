"""The one glance: each queue with its verdict, its sentence and its figures, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from dashboard.services.alerting import AlertCard, severity_rank
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.say import (
    UNKNOWN,
    age,
    clock,
    count,
    duration,
    instant,
    listing,
    messages,
    percent,
    rate,
)
from lake.catalogue import PAUSED

#: Below this share of the broker's own count, the events tell too little to be trusted alone.
TRUSTED_COVERAGE = 0.9
#: A fast queue whose arrivals exceed what leaves by no more than this part is in balance; windows are never exact.
PASSING = 0.1
_PASSES = ("draining", "growing")


class Verdict(IntEnum):
    """How much a queue needs somebody, the worst first."""

    ACT = 0
    WATCH = 1
    UNKNOWN = 2
    FINE = 3

    @property
    def word(self) -> str:
        """The verdict as a word on a card."""
        return ("needs you", "watch", "unknown", "keeps up")[self]


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure on a card: what it is, its value with the unit, and a note that explains it."""

    label: str
    value: str
    note: str = ""


#: The columns of the table of all queues, after the queue's name and verdict.
COLUMNS = ("Mode", "Oldest, quiet", "Oldest, all", "Backlog", "In → out", "Drained", "In flight", "Coverage", "Sampled")


@dataclass(frozen=True, slots=True)
class QueueCard:
    """One queue at one glance; ``sentence`` starts with its name."""

    key: QueueKey
    name: str
    verdict: Verdict
    mode: str
    sentence: str
    facts: tuple[Fact, ...]
    cells: tuple[str, ...]  # of the table of all queues, by COLUMNS
    unknown: str = ""  # why some of the facts are unknown
    ready: int | None = None  # messages that wait for a consumer
    flows: bool = False  # what waits only passes through

    @property
    def predicate(self) -> str:
        """The sentence for where the name stands already."""
        said = self.sentence.removeprefix(f"{self.name}: ")
        return said[:1].upper() + said[1:]


def queue_cards(
    health: Iterable[Row],
    totals: Iterable[Row],
    noisy: Iterable[Row],
    alerts: Sequence[AlertCard],
    now: datetime,
    names: Mapping[QueueKey, str] | None = None,
) -> tuple[QueueCard, ...]:
    """A card for each row of ``queue_health_now``, the worst first, then the longest wait of quiet tenants.

    ``totals`` are sums over tenants for each queue; ``noisy`` the noisy tenants with ``noisy_since``.
    """
    rows = {QueueKey.of(row): row for row in health}
    sums = {QueueKey.of(row): row for row in totals}
    loud: dict[QueueKey, list[Row]] = {}
    for row in noisy:
        loud.setdefault(QueueKey.of(row), []).append(row)
    if names is None:
        names = short_names(rows)
    ranked = []
    for key, row in rows.items():
        total = sums.get(key, {})
        flows = _flows(row, total)
        judged = verdict(row, total, [alert for alert in alerts if alert.queue == key])
        card = QueueCard(
            key=key,
            name=names[key],
            verdict=judged,
            mode=_mode(row, now, needed=judged is Verdict.ACT),
            sentence=sentence(names[key], row, total, loud.get(key, []), now),
            facts=_facts(row, total, flows=flows),
            cells=_cells(row, total, flows=flows),
            unknown=_why_unknown(row, total),
            ready=total.get("ready"),
            flows=flows,
        )
        ranked.append((card.verdict, *_harm(row), -(total.get("backlog") or 0), card.name, card))
    return tuple(entry[-1] for entry in sorted(ranked, key=lambda entry: entry[:-1]))


def _harm(row: Row) -> tuple[float, float]:
    """What ranks queues of one verdict: how long quiet tenants wait, then anybody; who is noisy waits for himself.

    Dead letters harm no tenant by waiting longer: they wait for somebody to bring them back.
    """
    if row["dead_letter_for"]:
        return 0.0, 0.0
    anybody = row["oldest_age_seconds"] or 0.0
    quiet = row["quiet_oldest_age_seconds"]
    if quiet is None:
        quiet = 0.0 if row["noisy_tenants"] else anybody  # nobody is known as noisy: all are quiet
    return -quiet, -anybody


def verdict(row: Row, total: Row, alerts: Sequence[AlertCard]) -> Verdict:
    """How much the queue needs somebody: a severe alert, or that it is behind and will not catch up.

    A warning or a ticket (some messages were dead-lettered, say) asks for a look, not for somebody at once.
    """
    firing = [alert for alert in alerts if alert.firing]
    if any(severity_rank(alert.severity) < severity_rank("warning") for alert in firing):
        return Verdict.ACT
    state = _state_verdict(row, total)
    return min(state, Verdict.WATCH) if firing else state


def _state_verdict(row: Row, total: Row) -> Verdict:
    if row["mode"] is None and row["drain_state"] != "stalled":
        if _empty_by_count(row):
            return Verdict.FINE
        return Verdict.WATCH if row["dead_letter_for"] and row["depth"] else Verdict.UNKNOWN
    if row["mode"] == "backlogged":
        at_work = (total.get("ready") if total else row["depth"]) == 0
        known = at_work or row["status"] == PAUSED  # for long, and nobody waits behind it; or somebody means it
        return Verdict.WATCH if known or row["drain_state"] == "draining" else Verdict.ACT
    if row["noisy_tenants"] or row["drain_state"] == "stalled":
        return Verdict.WATCH
    return Verdict.FINE


def sentence(name: str, row: Row, total: Row, noisy: Sequence[Row], now: datetime) -> str:
    """The queue's state in one sentence: who, since when, how much, and whether it drains."""
    parts = ["paused"] if row["status"] == PAUSED else []
    if noisy:
        parts.append(_who(noisy, total, now))
    elif row["noisy_tenants"]:
        parts.append(f"{row['noisy_tenants']} noisy tenants")
    parts.append(drain_sentence(total.get("backlog"), total, row, now))
    return f"{name}: {'; '.join(parts)}"


def _who(noisy: Sequence[Row], total: Row, now: datetime) -> str:
    in_flight = total.get("in_flight") or 0
    ranked = sorted(noisy, key=lambda row: (-(row["in_flight"] or 0), -(row["backlog"] or 0), row["tenant"]))
    shown = [
        f"{row['tenant']} holds {percent(row['in_flight'] / in_flight if in_flight else None)} of in flight"
        if in_flight
        else f"{row['tenant']} holds {percent(row['share'])} of the backlog"
        for row in ranked[:2]
    ]
    if len(ranked) > 2:
        shown.append(f"{len(ranked) - 2} more are noisy")
    since = [row["noisy_since"] for row in ranked[:2] if row.get("noisy_since") is not None]
    when = f" since {clock(min(since), now)}" if since else ""
    return f"tenant {listing(shown)}{when}"


def drain_sentence(backlog: float | None, total: Row, row: Row, now: datetime) -> str:
    """Whether the backlog drains, and by when: ``backlog 1,240, growing by 8/s; will not drain``."""
    state = row["drain_state"]
    if state is None or backlog is None:
        if _empty_by_count(row):
            return "nothing waits, by the broker's own count"
        if row["dead_letter_for"] and row["depth"]:
            letters = f"{count(row['depth'])} dead letter{'' if row['depth'] == 1 else 's'}"
            return f"holds {letters} of {_served(row)} until somebody brings them back"
        held = _counted(row)
        if total:
            return f"earlier events are still being read, so backlog and drain are {UNKNOWN}; {held}"
        return f"no message events are seen, so {_lacking(row)} are {UNKNOWN}; {held}{_by_samples(row)}"
    arrivals, leaving = total.get("arrival_rate"), total.get("completion_rate")
    gain = arrivals - leaving if arrivals is not None and leaving is not None else None
    if state == "idle":
        return "nothing waits"
    if _flows(row, total):
        return f"{messages(backlog)} on the way, within the target"
    if state == "stalled":
        return f"backlog {count(backlog)}, stalled: nothing leaves; will not drain"
    if state == "growing":
        by = f" by {rate(gain)}" if gain is not None and gain > 0 else ""
        return f"backlog {count(backlog)}, growing{by}; will not drain"
    seconds = row["drain_eta_seconds"]
    if seconds is None:
        return f"backlog {count(backlog)}, draining; until when is {UNKNOWN}"
    end = instant(now + timedelta(seconds=seconds), now, seconds=seconds < 600) if seconds < 864_000 else "later"
    return f"backlog {count(backlog)}; at the rates of the last seconds drained in {duration(seconds)}, by {end}"


def _counted(row: Row) -> str:
    """What the broker holds by its own count."""
    if row["depth"] is None:
        return "its depth is unknown too"
    if row["depth"] == 0 and row["in_flight"]:
        return f"by the broker's own count none waits and {count(row['in_flight'])} are in flight"
    return f"the broker counts {messages(row['depth'])}"


def _lacking(row: Row) -> str:
    """What samples alone do not tell of the queue."""
    told = {"ages": row["oldest_age_seconds"], "drain": row["drain_state"]}
    return listing(["noisy tenants", *(name for name, value in told.items() if value is None)])


def _by_samples(row: Row) -> str:
    """What samples tell besides the depth: whether it drains, and the age of the oldest message."""
    drains = {"growing": "growing", "stalled": "nothing leaves", "draining": f"drained {drained(row)}"}
    seconds = row["oldest_age_seconds"]
    parts = (drains.get(row["drain_state"]), None if seconds is None else f"the oldest {duration(seconds)} old")
    return "".join(f", {part}" for part in parts if part)


def flowing(health: Iterable[Row], totals: Iterable[Row]) -> frozenset[QueueKey]:
    """The queues in which what waits only passes through."""
    sums = {QueueKey.of(row): row for row in totals}
    return frozenset(key for row in health if _flows(row, sums.get(key := QueueKey.of(row), {})))


def _flows(row: Row, total: Row) -> bool:
    """Whether what waits is only passing through: within the target, nobody noisy, and no more comes than leaves."""
    if row["mode"] != "fast" or row["drain_state"] not in _PASSES or row["noisy_tenants"]:
        return False
    arrivals, leaving = total.get("arrival_rate") or 0.0, total.get("completion_rate") or 0.0
    return arrivals - leaving <= PASSING * arrivals


def _served(row: Row) -> str:
    """Whose dead letters the queue holds."""
    return listing([name.strip() for name in row["dead_letter_for"].split(",")])


def _empty_by_count(row: Row) -> bool:
    return row["depth"] == 0 and not row["in_flight"]


#: Whether the oldest message is older than the target: in words, since a fast queue may need somebody, too.
_MODES = {"fast": "within its target", "backlogged": "beyond its target"}


def _mode(row: Row, now: datetime, *, needed: bool = False) -> str:
    if row["mode"] is None:
        if row["dead_letter_for"]:
            return "a dead-letter queue"
        return "no message events seen" if row["drain_state"] is None else "mode unknown"
    since = f" since {clock(row['mode_since'], now)}" if row["mode_since"] is not None else ""
    still = "still " if needed and row["mode"] == "fast" else ""  # it needs somebody for another reason
    return f"{still}{_MODES.get(row['mode'], row['mode'])}{since}"


def _facts(row: Row, total: Row, *, flows: bool) -> tuple[Fact, ...]:
    limit = row["in_flight_limit"]
    return (
        _waits(row),
        Fact("Backlog", count(total.get("backlog")), _tenants(total)),
        Fact("In → out", _flow(total), "messages a second"),
        Fact("Drained", drained(row, flows=flows), "" if flows else row["drain_state"] or ""),
        Fact("In flight", count(row["in_flight"]), f"limit {count(limit)}"),
        Fact("Broker's own count", count(row["depth"]), _trust(row)),
    )


def _waits(row: Row) -> Fact:
    if row["noisy_tenants"] is None:  # nobody knows whose the messages are
        whose = "whose it is, is unknown" if row["oldest_age_seconds"] is not None else ""
        return Fact("Oldest message", _oldest(row), whose)
    return Fact("Oldest, quiet tenants", _oldest(row, "quiet_"), f"all tenants: {_oldest(row)}")


def _tenants(total: Row) -> str:
    if not total:
        return "no tenant seen"
    if total["tenants"] is None:  # an earlier version of the analysis did not count them
        return ""
    return f"{count(total['tenants'])} {'tenant' if total['tenants'] == 1 else 'tenants'}"


def _why_unknown(row: Row, total: Row) -> str:
    if total and total.get("backlog") is None:
        return "earlier events are still being read"
    if total:
        return "not measured yet, or not told by the broker"
    if row["dead_letter_for"]:
        return "no message event of a dead-letter queue is seen; the page “Dead letters” tells whose they are, and why"
    also = ""
    if row["depth"] is None:  # a log that nobody subscribes to is read, and has no depth
        read = row["staleness_seconds"] is not None
        also = ", and the broker tells no depth" if read else ", nor does a sampler read it"
    return f"no message event of this queue is seen{also}; a tap, the receiver or `sojourn.Recorder` tells them"


def _cells(row: Row, total: Row, *, flows: bool) -> tuple[str, ...]:
    stale = row["staleness_seconds"]
    return (
        row["mode"] or UNKNOWN,
        _oldest(row, "quiet_"),
        _oldest(row),
        _backlog(row, total),
        _flow(total),
        drained(row, flows=flows),
        count(row["in_flight"]),
        percent(row["coverage"]),
        UNKNOWN if stale is None else "at once" if stale < 1 else f"{duration(round(stale))} before",
    )


def _backlog(row: Row, total: Row) -> str:
    """The backlog; of a queue without events as much of it as the broker counts, by the word for that."""
    return count(total.get("backlog")) if total or row["depth"] is None else f"{count(row['depth'])} ready"


def _flow(total: Row) -> str:
    arrivals, leaving = total.get("arrival_rate"), total.get("completion_rate")
    return UNKNOWN if arrivals is None or leaving is None else f"{rate(arrivals)} → {rate(leaving)}"


def _oldest(row: Row, who: str = "") -> str:
    """An age, or that nothing waits, where events or the broker's own count tell of that."""
    seconds = row[f"{who}oldest_age_seconds"]
    told = row["mode"] is not None and (row["noisy_tenants"] is not None or _empty_by_count(row))
    return age(seconds) if told or seconds is not None else UNKNOWN


def drained(row: Row, *, flows: bool = False) -> str:
    """When the backlog of a queue or a tenant is gone, shortly: ``in 42 s``, ``not at this rate``, ``empty``; what
    waits in a queue that ``flows`` only passes through, whosever it is."""
    state = row["drain_state"]
    if flows and state in _PASSES:
        return "flows"
    if state == "draining":
        return f"in {duration(row['drain_eta_seconds'])}"
    return {"idle": "empty", "growing": "not at this rate", "stalled": "not: nothing leaves"}.get(state, UNKNOWN)


def _trust(row: Row) -> str:
    if row["depth"] is None:
        return "no sampler reads it"
    coverage, stale = row["coverage"], row["staleness_seconds"]
    read = f", read {duration(round(stale))} before" if stale is not None and stale >= 10 else ""
    if coverage is None:
        return f"events cover {UNKNOWN}{read}"
    return f"events cover {'only ' if coverage < TRUSTED_COVERAGE else ''}{percent(coverage)}{read}"


def headline(cards: Sequence[QueueCard], alerts: Sequence[AlertCard], rules_ran: bool | None) -> str:
    """The page's first line: what is wrong, or that nothing is, or that nobody has looked, or (None) can know."""
    acting = [card.name for card in cards if card.verdict is Verdict.ACT]
    loose = [alert for alert in alerts if alert.firing and alert.queue is None]
    if acting:
        names = listing(acting) if len(acting) <= 3 else f"{', '.join(acting[:2])} and {len(acting) - 2} more"
        return f"{names} need{'s' if len(acting) == 1 else ''} you"
    if loose:
        return f"{loose[0].title} fires" if len(loose) == 1 else f"{len(loose)} alerts fire"
    watching = sum(card.verdict is Verdict.WATCH for card in cards)
    if watching:
        if watching <= 3:
            return f"Watch {listing([card.name for card in cards if card.verdict is Verdict.WATCH])}"
        return f"{watching} of {len(cards)} queues to watch"
    if any(card.verdict is Verdict.UNKNOWN for card in cards):
        return "No trouble seen, but not every queue is known"
    if rules_ran is None:
        return "All queues keep up, but their alerts are unknown"
    if not rules_ran:
        return "All queues keep up, but no alert rule has run"
    return "All queues keep up"
