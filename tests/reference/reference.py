"""The public views' definitions by brute force, from a list of events: the judge that the analytics answer to.

Written from the definitions alone (what each metric means, message by message and instant by instant) and sharing no
code with the views, the transforms or the histograms that it judges. Slow on purpose: every value is counted anew from
all events.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache

from tests.reference.lives import (
    ENDINGS,
    SECOND,
    Event,
    Key,
    Queue,
    Row,
    age_columns,
    fanned_out,
    is_delayed,
    is_waiting,
    micros,
    moment,
    named,
    nearest_rank,
    oldest_second,
    processing_times,
    read_event,
    without_duplicates,
)
from tests.reference.sampled import Sampled, named_as_events_are

#: Asked for again and again, of events and samples that stay as they are.
_COUNTED_ONCE = (
    *("_state", "_entered", "_quiet", "_noisy", "_mode", "_in_window", "_tenants", "queue_instants"),
    *("_samples_of", "_samples_until", "_newest_reading", "_sample_pairs", "_serving"),
)


class Reference(Sampled):
    """Every row of the eight metric views for ``events`` and ``samples`` (dicts with the columns of bronze).

    ``rolled``: by broker until which second it is told by the minute, and by the hour, as partials that were rolled up
    tell it: as of the end of each, and judged there.
    """

    def __init__(
        self,
        events: list[Row],
        samples: list[Row],
        *,
        window_seconds: int = 60,
        target_seconds: float = 30.0,
        rolled: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        samples = [sample for sample in samples if sample.get("publishes") is None]  # no view tells of those
        self.rolled = rolled or {}
        self.window = window_seconds
        self.target = target_seconds
        raw = [read_event(event) for event in without_duplicates(events)]
        self.newest: dict[str, int] = {}
        for broker in {event.queue.broker for event in raw} | {sample["broker"] for sample in samples}:
            seen = [event.at for event in raw if event.queue.broker == broker]
            seen = seen or [micros(sample["sampled_at"]) for sample in samples if sample["broker"] == broker]
            self.newest[broker] = max(seen)
        raw = [event._replace(told=self.placed(event.queue.broker, event.second)) for event in raw]
        self.receipts = raw
        self.samples = named_as_events_are(samples, raw)
        self.events: dict[Queue, list[Event]] = {}
        for event in fanned_out(raw):
            self.events.setdefault(event.queue, []).append(event)
        self.keys = sorted({Key(event.queue, event.tenant) for events in self.events.values() for event in events})
        self.by_key = {key: [e for e in self.events[key.queue] if e.tenant == key.tenant] for key in self.keys}
        self.first_second: dict[tuple[str, str], int] = {}
        for event in raw:
            place = event.queue[:2]
            first = event.second - self.width(event.queue.broker, event.second) + 1
            self.first_second[place] = min(first, self.first_second.get(place, first))
        for name in (*_COUNTED_ONCE, "attempt_age", "tenant_backlog", "concurrency", "queue_health"):
            setattr(self, name, cache(getattr(self, name)))

    # -- instants ---------------------------------------------------------------------------------------------

    def key_instants(self, key: Key) -> list[int]:
        """The seconds in which something happened to the key."""
        return sorted({event.second for event in self.by_key[key]})

    def queue_instants(self, queue: Queue) -> list[int]:
        """The seconds in which something happened to the queue or it was sampled, up to data time."""
        happened = {event.second for event in self.events.get(queue, [])}
        sampled = {self._sampled_second(sample) for sample in self._samples_of(queue)}
        return sorted(happened | {second for second in sampled if second <= self.now_second(queue.broker)})

    def queues(self) -> list[Queue]:
        sampled = {Queue(s["broker"], s["queue"], s["subscriber"]) for s in self.samples}
        return sorted(sampled | set(self.events))

    def _tenants(self, queue: Queue) -> list[Key]:
        return [key for key in self.keys if key.queue == queue]

    # -- state of one tenant at the end of a second -----------------------------------------------------------

    def _state(self, key: Key, second: int) -> Row:
        past = [event for event in self.by_key[key] if event.second <= second]
        enqueued = sum(event.type == "enqueued" for event in past)
        finished = [event for event in past if event.type in ENDINGS]
        unreceived = sum(event.type != "completed" and not event.attempt for event in finished)
        started = sum(event.type == "received" and event.attempt in (1, None) for event in past)
        by_message: dict[str, list[Event]] = {}
        for event in past:
            by_message.setdefault(event.message, []).append(event)
        waiting = sum(is_waiting(events) for events in by_message.values())
        delayed = sum(is_delayed(events) for events in by_message.values())
        backlog = max(0, enqueued - len(finished))
        in_flight = max(0, started - (len(finished) - unreceived) - waiting)
        return {
            "backlog": backlog,
            "in_flight": in_flight,
            "delayed": delayed,
            "ready": max(0, backlog - in_flight - delayed),
            "oldest_second": oldest_second(past) if backlog else None,
        }

    def _oldest_age(self, broker: str, oldest_second: int | None, second: int) -> float | None:
        if oldest_second is None:
            return None
        return max(0, self.as_of(broker, second) - oldest_second * SECOND) / SECOND

    def _in_window(self, key: Key, second: int) -> list[Event]:
        return [event for event in self.by_key[key] if self.in_window(key.queue.broker, event.second, second)]

    def _window_seconds(self, queue: Queue, second: int) -> int:
        if (width := self.width(queue.broker, second)) > 1:
            return width
        begins = max(self.first_second[queue[:2]], self.rolled.get(queue.broker, (-1, -1))[0] + 1)
        return min(self.window, second - begins + 1)

    def _drain(self, backlog: int, arrivals: float, completions: float) -> Row:
        if backlog == 0:
            state = "idle"
        elif completions == 0:
            state = "stalled"
        elif arrivals >= completions:
            state = "growing"
        else:
            state = "draining"
        eta = backlog / (completions - arrivals) if state == "draining" else None
        return {"drain_state": state, "drain_eta_seconds": eta}

    # -- noisy tenants ----------------------------------------------------------------------------------------

    def _entered(self, key: Key, second: int) -> bool:
        """Whether the tenant takes more than its share while others wait."""
        states = {other: self._state(other, second) for other in self._tenants(key.queue)}
        if not sum(state["ready"] for other, state in states.items() if other != key):
            return False
        active = sum(state["backlog"] > 0 for state in states.values())
        threshold = max(Fraction(1, 10), min(Fraction(6, 10), Fraction(2, active)))
        own, whole = states[key]["in_flight"], sum(state["in_flight"] for state in states.values())
        processing = {other: self._processing(other, second) for other in states}
        return (own >= 30 and own > threshold * whole) or processing[key] > threshold * sum(processing.values())

    def _processing(self, key: Key, second: int) -> Fraction:
        return sum((Fraction(value) for value in processing_times(self._in_window(key, second))), Fraction(0))

    def _quiet(self, key: Key, second: int) -> bool:
        arrivals = [e.second for e in self.by_key[key] if e.type == "enqueued" and e.second <= second]
        if not arrivals or second - max(arrivals) >= 300:
            return True
        state = self._state(key, second)
        return state["backlog"] == 0 or (state["ready"] == 0 and not self._entered(key, second))

    def _noisy(self, key: Key, second: int) -> bool:
        """Whether of ``second`` and the tenant's instants before it its last entry is later than its last quiet one."""
        instants = {*self.key_instants(key), second}
        past = sorted(instant for instant in instants if instant <= second)
        entered = max((instant for instant in past if self._entered(key, instant)), default=None)
        quiet = max((instant for instant in past if self._quiet(key, instant)), default=None)
        return entered is not None and (quiet is None or entered > quiet)

    # -- views ------------------------------------------------------------------------------------------------

    def _rows(self, of: Callable[[Key, int], Row], now: bool) -> list[Row]:
        rows = []
        for key in self.keys:
            for second in [self.now_second(key.queue.broker)] if now else self.key_instants(key):
                whose = named(key.queue) | {"tenant": key.tenant}
                rows.append({"as_of": moment(self.as_of(key.queue.broker, second)), **whose, **of(key, second)})
        return rows

    def tenant_backlog(self, *, now: bool = False) -> list[Row]:
        return self._rows(self._tenant_backlog, now)

    def _tenant_backlog(self, key: Key, second: int) -> Row:
        state, lately = self._state(key, second), self._in_window(key, second)
        length = self._window_seconds(key.queue, second)
        arrivals = sum(event.type == "enqueued" for event in lately) / length
        completions = sum(event.type in ENDINGS for event in lately) / length
        whole = sum(self._state(other, second)["backlog"] for other in self._tenants(key.queue))
        return {
            "backlog": state["backlog"],
            "in_flight": state["in_flight"],
            "ready": state["ready"],
            "oldest_age_seconds": self._oldest_age(key.queue.broker, state["oldest_second"], second),
            "arrival_rate": arrivals,
            "completion_rate": completions,
            "share": state["backlog"] / whole if whole else None,
            "noisy": self._noisy(key, second),
            **self._drain(state["backlog"], arrivals, completions),
            "coverage": (coverage := self._coverage(key.queue, second)),
            "reconciled_backlog": _reconciled(state["backlog"], coverage),
        }

    def concurrency(self, *, now: bool = False) -> list[Row]:
        return self._rows(self._concurrency, now)

    def _concurrency(self, key: Key, second: int) -> Row:
        lately = self._in_window(key, second)
        starts = sum(event.type == "received" for event in lately) / self._window_seconds(key.queue, second)
        processing = processing_times(lately)
        mean = math.fsum(processing) / len(processing) if processing else None
        littles_law = None if mean is None else starts * mean
        limits = [s for s in self._samples_until(key.queue, second) if s.get("in_flight_limit") is not None]
        limit = limits[-1]["in_flight_limit"] if limits else None
        return {
            "start_rate": starts,
            "mean_processing_seconds": mean,
            "p99_processing_seconds": nearest_rank(processing, Fraction(99, 100)) if processing else None,
            "littles_law": littles_law,
            "in_flight": self._state(key, second)["in_flight"],
            "concurrency_limit": limit,
            "saturation": littles_law / limit if littles_law is not None and limit else None,
        }

    def queue_health(self, *, now: bool = False) -> list[Row]:
        rows = []
        for queue in self.queues():
            for second in [self.now_second(queue.broker)] if now else self.queue_instants(queue):
                as_of = moment(self.as_of(queue.broker, second))
                rows.append({"as_of": as_of, **named(queue), **self._queue_health(queue, second)})
        return rows

    def _queue_health(self, queue: Queue, second: int) -> Row:
        row: Row = dict.fromkeys(("retry_ratio", "noisy_tenants", "dead_lettered", "coverage"))
        row |= dict.fromkeys(("oldest_age_seconds", "quiet_oldest_age_seconds", "mode", "mode_since"))
        row |= {"drain_state": None, "drain_eta_seconds": None} | self._broker_says(queue, second)
        if not self._has_events(queue, second):
            row["oldest_age_seconds"] = self._sampled_age(queue, second)
            return row | self._sampled_drain(queue, second) | self._moded(queue, second)
        tenants = self._tenants(queue)
        states = {key: self._state(key, second) for key in tenants}
        noisy = {key for key in tenants if self._noisy(key, second)}
        lately = [event for key in tenants for event in self._in_window(key, second)]
        received = [event for event in lately if event.type == "received"]
        backlog = sum(state["backlog"] for state in states.values())
        length = self._window_seconds(queue, second)
        row |= {
            "in_flight": sum(state["in_flight"] for state in states.values()),
            "oldest_age_seconds": self._queue_age(queue, second, set()),
            "quiet_oldest_age_seconds": self._queue_age(queue, second, noisy),
            "noisy_tenants": len(noisy),
            "retry_ratio": sum((e.attempt or 0) >= 2 for e in received) / len(received) if received else None,
            "dead_lettered": sum(event.type == "dead_lettered" for event in lately),
            **self._drain(
                backlog,
                sum(event.type == "enqueued" for event in lately) / length,
                sum(event.type in ENDINGS for event in lately) / length,
            ),
        }
        row["coverage"] = self._coverage(queue, second)
        return row | self._moded(queue, second)

    def _moded(self, queue: Queue, second: int) -> Row:
        """The mode, and since when it lasts."""
        mode = self._mode(queue, second)
        if mode is None:
            return {"mode": None, "mode_since": None}
        since = second
        for instant in reversed([at for at in self.queue_instants(queue) if at < second]):
            if self._mode(queue, instant) != mode:
                break
            since = instant
        return {"mode": mode, "mode_since": moment(self.as_of(queue.broker, since))}

    def _coverage(self, queue: Queue, second: int) -> float | None:
        """What the events said ÷ what the broker said, both in the second of the newest sample."""
        there = self._there(newest := self._newest_reading(queue, second))
        if there is None or newest is None:
            return None
        then = min(self._sampled_second(newest), self.now_second(queue.broker))
        if not self._has_events(queue, then):
            return None
        backlog = sum(self._state(key, then)["backlog"] for key in self._tenants(queue))
        return backlog / there if there else (1.0 if backlog == 0 else None)

    def _has_events(self, queue: Queue, second: int) -> bool:
        return any(event.second <= second for event in self.events.get(queue, []))

    def _queue_age(self, queue: Queue, second: int, without: set[Key]) -> float | None:
        seconds = [self._state(key, second)["oldest_second"] for key in self._tenants(queue) if key not in without]
        return self._oldest_age(queue.broker, min((at for at in seconds if at is not None), default=None), second)

    def _mode(self, queue: Queue, second: int) -> str | None:
        """``fast`` or ``backlogged`` by the oldest age; None for a backlog of unknown age.

        Before any event the broker's samples are all that is known.
        """
        if not self._has_events(queue, second):
            newest, age = self._newest_reading(queue, second), self._sampled_age(queue, second)
            if newest is not None and newest.get("dead_letter_for"):
                return None
            if age is None:
                return "fast" if self._there(newest) == 0 else None
            return "backlogged" if age > self.target else "fast"
        age = self._queue_age(queue, second, set())
        if age is None and any(self._state(key, second)["backlog"] for key in self._tenants(queue)):
            return None
        return "backlogged" if age is not None and age > self.target else "fast"

    # -- ages -------------------------------------------------------------------------------------------------

    def attempt_age(self, *, now: bool = False) -> list[Row]:
        buckets: dict[tuple[Queue, str, str, int], list[int]] = {}

        def add(queue: Queue, event: Event, kind: str) -> None:
            if event.age is not None:
                buckets.setdefault((queue, event.tenant, kind, event.second), []).append(event.age)

        earliest: dict[tuple[str, str, str], Event] = {}
        for event in self.receipts:
            if event.type == "completed":
                add(event.queue, event, "completion")
            elif event.type == "received" and (event.attempt or 0) >= 2:
                add(event.queue, event, "retry")
            elif event.type == "received" and event.attempt == 1:
                add(event.queue, event, "first_attempt")
                message = (event.queue.broker, event.queue.queue, event.message)
                if message not in earliest or event.at < earliest[message].at:
                    earliest[message] = event
        for event in earliest.values():
            add(event.queue._replace(subscriber=""), event, "first_subscriber_first_attempt")
        newest = Counter[tuple[Queue, str, str]]()
        for queue, tenant, kind, second in buckets:
            newest[queue, tenant, kind] = max(newest[queue, tenant, kind], second)
        return [
            {
                "bucket_start": moment(second * SECOND),
                "bucket_seconds": 1,
                **named(queue),
                "tenant": tenant,
                "kind": kind,
                **age_columns(ages),
            }
            for (queue, tenant, kind, second), ages in sorted(buckets.items())
            if not now or newest[queue, tenant, kind] == second
        ]


def _reconciled(backlog: int, coverage: float | None) -> int | None:
    """The backlog as the broker's depth has it, if every tenant's messages are seen as well as any other's."""
    if not coverage:
        return None
    return backlog if coverage >= 1 else math.floor(backlog / coverage + 0.5)
