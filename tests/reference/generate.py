"""Logs of message events as real queues leave them, from a plan of each message's life; seeded, or by hypothesis.

A log holds several queues: a work queue, one with two named subscribers that share its arrivals, one that does not
number attempts, one whose single subscriber is named by producer and consumer. Their messages fail, are retried, lose
their consumer, are delayed, dead-lettered, expired or sidelined, or stay. Clocks of some producers are skewed, some
endings do not tell when the message was enqueued, some events come twice, and lines stand in any order.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Row = dict[str, Any]

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = 1_000_000


@dataclass(frozen=True)
class QueueKind:
    """A queue: who produces to it by which subscriber's name, who consumes, and whether attempts are numbered."""

    broker: str
    name: str
    producer_names: str | None
    consumers: tuple[str | None, ...]
    numbered: bool = True


QUEUES = (
    QueueKind("nats", "orders", None, (None,)),
    QueueKind("nats", "notices", None, ("audit", "billing")),
    QueueKind("redis", "mail", None, (None,), numbered=False),
    QueueKind("redis", "tasks", "workers", ("workers",)),
)
TENANTS = ("acme", "globex", None, "initech")


@dataclass(frozen=True)
class Attempt:
    """``wait`` and ``busy`` in microseconds; ``end`` is an event type, or ``lost`` (says nothing), or ``open``."""

    wait: int
    busy: int
    end: str
    put_off: bool = False
    timed: bool = True


@dataclass(frozen=True)
class Life:
    """What happens to a message at one consumer; ``end`` follows after ``end_wait`` where no attempt ended it."""

    attempts: tuple[Attempt, ...]
    end: str
    end_wait: int
    zero: bool = False


@dataclass(frozen=True)
class Message:
    """A message's plan; ``at``, ``skew`` (of the producer's clock) in microseconds."""

    queue: int
    tenant: int
    at: int
    skew: int
    lives: tuple[Life, Life]
    tells_enqueue_time: bool = True
    arrival_seen: bool = True


def moment(value: int) -> datetime:
    return START + timedelta(microseconds=value)


def events_of(number: int, message: Message) -> list[Row]:
    """The events of one message, in order of their happening at each consumer."""
    kind = QUEUES[message.queue]
    common = {
        "broker": kind.broker,
        "queue": kind.name,
        "message_id": f"m{number}",
        "tenant": TENANTS[message.tenant],
        "enqueued_at": moment(message.at + message.skew),
        "clock": "producer" if message.skew else "broker",
    }
    rows = []
    if message.arrival_seen:
        arrival = {"event_type": "enqueued", "occurred_at": moment(message.at), "subscriber": kind.producer_names}
        rows.append(common | arrival)
    for subscriber, life in zip(kind.consumers, message.lives, strict=False):
        for row in _lived(message.at, life, kind.numbered):
            known = message.tells_enqueue_time or row["event_type"] in ("received", "failed", "delayed")
            rows.append(common | {"subscriber": subscriber} | row | ({} if known else {"enqueued_at": None}))
    return [row | {"event_id": f"{number}-{index}"} for index, row in enumerate(rows)]


def _lived(at: int, life: Life, numbered: bool) -> list[Row]:
    rows: list[Row] = []
    number = 0

    def happens(event_type: str, **more: Any) -> None:
        attempt = number if numbered else None
        rows.append({"event_type": event_type, "attempt": attempt, "occurred_at": moment(at), **more})

    for attempt in life.attempts if numbered else life.attempts[:1]:
        number += 1
        at += attempt.wait
        happens("received")
        end = attempt.end if numbered or attempt.end in ("open", "completed") else "completed"
        if end == "open":
            return rows
        at += attempt.busy
        timed = {"processing_seconds": attempt.busy / SECOND} if attempt.timed else {}
        if end == "failed":
            happens("failed", reason="boom", **timed)
        if attempt.put_off and end in ("failed", "lost"):
            happens("delayed")
        if end in ("completed", "dead_lettered", "expired", "sidelined"):
            happens(end, **(timed if end == "completed" else {}))
            return rows
    if life.end != "open" and (numbered or not life.attempts):
        at += life.end_wait
        happens(life.end, **({} if number else {"attempt": 0 if life.zero else None}))
    return rows


def shuffled(events: list[Row], rng: random.Random, *, duplicates: float = 0.05) -> list[Row]:
    """The log as it arrives: some lines twice, all of them out of order."""
    lines = [*events, *(dict(event) for event in events if rng.random() < duplicates)]
    rng.shuffle(lines)
    return lines


# -- seeded -----------------------------------------------------------------------------------------------------------


def generate(seed: int, *, messages: int, seconds: int, burst: int = 0) -> tuple[list[Row], list[Row]]:
    """A realistic log and samples. ``burst`` messages of one tenant come at once, each held long by its consumer."""
    rng = random.Random(seed)
    plans = [_message(rng, rng.randrange(seconds * SECOND)) for _ in range(messages)]
    held = Life((Attempt(SECOND // 2, 20 * SECOND, "completed"),), "open", 0)
    for _ in range(burst):
        at = seconds * SECOND // 3 + rng.randrange(5 * SECOND)
        plans.append(Message(0, 1, at, 0, (held, held)))
    events = [event for number, plan in enumerate(plans) for event in events_of(number, plan)]
    for event in events:
        if rng.random() < 0.1:  # a log without ids: equal lines are equal events
            del event["event_id"]
    return shuffled(events, rng), samples(rng, seconds)


def _message(rng: random.Random, at: int) -> Message:
    return Message(
        queue=rng.choices(range(4), (5, 3, 2, 2))[0],
        tenant=rng.choices(range(4), (6, 3, 1, 1))[0],
        at=at,
        skew=rng.randint(-2 * SECOND, 4 * SECOND) if rng.random() < 0.1 else 0,
        lives=(_life(rng), _life(rng)),
        tells_enqueue_time=rng.random() > 0.05,
        arrival_seen=rng.random() > 0.02,
    )


def _life(rng: random.Random) -> Life:
    def duration(mean: float) -> int:
        return round(rng.expovariate(1 / mean) * SECOND)

    def attempt() -> Attempt:
        end = rng.choices(("completed", "failed", "lost", "open", "dead_lettered"), (70, 18, 5, 4, 3))[0]
        return Attempt(duration(3), duration(1), end, rng.random() < 0.3, rng.random() < 0.95)

    attempts = tuple(attempt() for _ in range(rng.choices((0, 1, 2, 3, 4), (5, 20, 30, 30, 15))[0]))
    end = rng.choice(("open", "dead_lettered", "expired", "sidelined"))
    return Life(attempts, end, duration(10), rng.random() < 0.5)


def samples(rng: random.Random, seconds: int) -> list[Row]:
    """Samples of every consumer's queue and of a dead-letter queue, with gaps, restarts and unknown values, and reports
    of publishes, which are none."""
    rows, chance = [], random.Random(seconds)
    places: list[tuple[str, str, str | None, str | None]] = [
        (kind.broker, kind.name, consumer, None) for kind in QUEUES for consumer in kind.consumers
    ]
    places += [
        ("nats", "notices", None, None),
        ("nats", "orders.dead", None, "orders"),
        ("nats", "dead", None, "notices,orders"),
        ("redis", "mail", "crew", None),
    ]
    for broker, queue, subscriber, serves in places:
        polls = empty = acked = 0
        at = rng.randrange(20 * SECOND)
        while at < (seconds + 20) * SECOND:
            if rng.random() < 0.05:
                polls = empty = acked = 0
            acked += rng.choice((0, 0, 3))
            polls += (more := rng.randrange(50))
            empty += rng.randint(0, more)
            rows.append(
                {
                    "sampled_at": moment(at),
                    "broker": broker,
                    "queue": queue,
                    "subscriber": subscriber,
                    "source": "sampler",
                    "depth": _maybe(rng, rng.choice((0, 7, rng.randrange(40)))),
                    "in_flight": _maybe(rng, rng.choice((0, 0, rng.randrange(10)))),
                    "oldest_age_seconds": _maybe(rng, rng.choice((0.25, 12.5, 90.0))),
                    "acked_total": _maybe(rng, acked) if serves is None else None,
                    "polls_total": polls if broker == "redis" else None,
                    "empty_polls_total": empty if broker == "redis" else None,
                    "dead_letter_for": serves,
                    "in_flight_limit": _maybe(rng, rng.choice((10, 100))),
                    "staleness_seconds": _maybe(rng, rng.choice((0.0, 5.0))),
                    **_told(at),
                }
            )
            if rng.random() < 0.2:
                rows.append(_polls_alone(rows[-1], at + rng.randrange(2 * SECOND), polls))
            if rng.random() < 0.2:
                place = {name: rows[-1][name] for name in ("broker", "queue", "subscriber")}
                when = moment(at + rng.randrange(2 * SECOND))
                rows.append({"sampled_at": when, **place, "source": "otlp:estimated", "estimated": rng.randrange(1, 9)})
            if chance.random() < 0.2:
                place = {"broker": broker, "queue": queue, "subscriber": None, "source": "receiver:r"}
                told = {"publishes": chance.randrange(1, 9), "publish_errors": 1, "publish_latency_seconds": 0.1}
                rows.append({"sampled_at": moment(at + chance.randrange(2 * SECOND)), **place, **told})
            at += rng.randint(SECOND, 20 * SECOND)
    return rows


def _told(at: int) -> Row:
    """What is passed on as the broker told it, or did not."""
    turn = at % 7
    return {
        "consumers": turn or None,
        "delayed": turn - 1 if turn else None,
        "status": (None, "OK", "STALL", "LOST", None, "STOP", "OK")[turn],
        "retention_margin": 1000 - turn if turn > 1 else None,
        "prefetch": 10 * turn if turn > 2 else None,
        "visibility_timeout_seconds": 30.0 + turn if turn > 3 else None,
        "transactional_lag": turn * 5 if turn > 4 else None,
        "transactional_age_seconds": 60.0 * turn if turn > 5 else None,
        "sample_interval_seconds": 0.5 * turn if turn > 1 else None,
        "lost_total": at // SECOND % 50 if turn else None,
    }


def _polls_alone(sample: Row, at: int, polls: int) -> Row:
    """What an application reports of its own polls: nothing that the broker knows."""
    place = {name: sample[name] for name in ("broker", "queue", "subscriber")}
    ours = {"source": "client", "polls_total": 10 * polls, "empty_polls_total": 3 * polls}
    return {"sampled_at": moment(at), **place, **ours}


def _maybe(rng: random.Random, value: Any) -> Any:
    return value if rng.random() < 0.85 else None


# -- hypothesis -------------------------------------------------------------------------------------------------------

#: Whole and half seconds, so that events often share a second, and a few odd ones and long ones.
_DURATIONS = st.one_of(
    st.integers(0, 8).map(lambda halves: halves * SECOND // 2),
    st.sampled_from([1, 999_999, 1_000_001, 2_345_678, 45 * SECOND, 130 * SECOND]),
)
_ATTEMPTS = st.builds(
    Attempt,
    wait=_DURATIONS,
    busy=_DURATIONS,
    end=st.sampled_from(["completed", "failed", "failed", "lost", "open", "dead_lettered", "expired", "sidelined"]),
    put_off=st.booleans(),
    timed=st.booleans(),
)
_LIVES = st.builds(
    Life,
    attempts=st.lists(_ATTEMPTS, max_size=3).map(tuple),
    end=st.sampled_from(["open", "dead_lettered", "expired", "sidelined"]),
    end_wait=_DURATIONS,
    zero=st.booleans(),
)
_MESSAGES = st.builds(
    Message,
    queue=st.integers(0, len(QUEUES) - 1),
    tenant=st.integers(0, 2),
    at=st.integers(0, 40).map(lambda halves: halves * SECOND // 2) | st.sampled_from([1, 333_333, 301 * SECOND]),
    skew=st.sampled_from([0, 0, 0, -1_500_000, 2 * SECOND]),
    lives=st.tuples(_LIVES, _LIVES),
    tells_enqueue_time=st.sampled_from([True, True, True, False]),
    arrival_seen=st.sampled_from([True, True, True, False]),
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """A small log of any lives, and samples for some of its seconds."""
    plans: list[Message] = draw(st.lists(_MESSAGES, min_size=1, max_size=8))
    rng = random.Random(draw(st.integers(0, 1000)))
    if draw(st.booleans()):  # one tenant holds as many messages as make it noisy
        held = Life((Attempt(SECOND, 30 * SECOND, "completed"),), "open", 0)
        first = replace(plans[0], lives=(held, held))
        plans += [replace(first, at=first.at + index * 10_000) for index in range(32)]
    events = [event for number, plan in enumerate(plans) for event in events_of(number, plan)]
    if not events:
        events = events_of(0, Message(0, 0, 0, 0, (Life((), "open", 0), Life((), "open", 0))))
    return shuffled(events, rng), samples(rng, draw(st.sampled_from([0, 0, 30])))


def write_jsonl(path: Path, events: list[Row]) -> Path:
    """The events as `sojourn replay` reads them."""
    lines = (json.dumps(event, default=lambda value: value.isoformat()) for event in events)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
