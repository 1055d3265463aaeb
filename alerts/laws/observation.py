"""What a law is told of a queue and of one tenant in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alerts.laws.max_min import share

#: Ages in the metrics are told from the whole second in which a message came: up to so much too long (seconds).
AGE_RESOLUTION = 1.0
#: How many times as long as all of the quiet, on average, their oldest is believed to wait.
OLDEST_TO_MEAN = 2.0
#: How many times as long as what began lately what is still to begin is believed to wait: queues grow, and what is told
#: up to a second too long is believed as soon as a third of a second is waited.
WAITING_TO_BEGUN = 4.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A queue and one tenant of it, as the metrics show them. None is unknown, never zero.

    ``backlog``, ``completion_rate`` and ``active_tenants`` are the whole queue's. ``arrival_rate`` is the tenant's over
    the last seconds, ``others_rate`` that of all others together, ``finish_rate`` what consumers finished of the queue
    in them. ``quiet_age_seconds`` is 0 where no quiet tenant waits. ``usual_rate`` and ``others_usual`` are the same
    arrivals over the metrics' window, which is longer: what they were a while ago. ``ready`` of the backlog wait for a
    consumer. ``cost`` is the work for a message of the tenant beside that for the queue's mean one, ``others_cost``
    that for one of all others; 1 where nobody tells; it rests on ``cost_rests_on`` messages. The last seconds are
    ``recent_seconds``; 0: unknown. ``own_backlog`` is the tenant's part of the backlog. ``in_hand`` messages of the
    backlog were in consumers' hands on average, by the work that ended in the last seconds. ``rivals`` are what each of
    the others that an alert names, or a limit holds, sends of ``others_rate``, in messages of the queue's mean cost.
    Quiet tenants have ``quiet_ready`` messages that wait, and send ``quiet_rate`` a second of late; of theirs that were
    tried for the first time in the last seconds the oldest was ``quiet_first_age`` old, of anybody's ``first_age``
    (seconds): of who sent nothing, anybody's counts; None where nothing began, or nobody tells.
    ``lately`` is the same by rates over as short a time as tells anything, where that is asked for.

    What laws of their own are judged by (:mod:`alerts.laws.registry`) is measured only where one is chosen: of the
    tenant's ``attempts`` that ended over the law's window ``failures`` failed, and of late ``attempt_rate`` a second
    ended; the broker confirmed a publish after ``publish_seconds`` (median of the window), and the part
    ``publish_errors`` of the ``publishes`` looked at it refused, or did not confirm: a probe's, where they are
    ``publishes_probed``, else the applications' own to this queue; work on a message of the tenant takes
    ``processing_seconds``, its consumer has ``in_work`` of them in hand, and may have ``prefetch`` at once.
    """

    data_age_seconds: float | None
    sample_age_seconds: float | None
    depth: float | None
    coverage: float | None
    backlog: float
    quiet_age_seconds: float
    calm: bool
    completion_rate: float
    active_tenants: int
    arrival_rate: float
    others_rate: float
    finish_rate: float
    usual_rate: float | None = None
    others_usual: float | None = None
    ready: float | None = None
    cost: float = 1.0
    others_cost: float = 1.0
    cost_rests_on: float = 0.0
    recent_seconds: float = 0.0
    own_backlog: float | None = None
    in_hand: float | None = None
    rivals: tuple[float, ...] = ()
    quiet_ready: float | None = None
    quiet_rate: float | None = None
    quiet_first_age: float | None = None
    first_age: float | None = None
    lately: Observation | None = None
    attempts: float | None = None
    failures: float | None = None
    attempt_rate: float | None = None
    publishes: float | None = None
    publish_seconds: float | None = None
    publish_errors: float | None = None
    publishes_probed: bool | None = None
    processing_seconds: float | None = None
    prefetch: float | None = None
    in_work: float | None = None

    @property
    def throughput(self) -> float:
        """What consumers have shown they can finish of the queue, messages/s: over the window or over the last seconds,
        whichever is more."""
        return max(self.completion_rate, self.finish_rate)

    @property
    def waiting(self) -> float:
        """How many messages wait for a consumer, at most.

        Some brokers tell only after a while what was given to whom, so that short work is never seen in hand: the work
        that ended says how much of the backlog it was (Little's law).
        """
        ready = self.backlog if self.ready is None else self.ready
        return max(0.0, min(ready, self.backlog - (self.in_hand or 0.0)))

    @property
    def expected_wait(self) -> float:
        """How long they will wait (seconds), by Little's law; infinite while nothing is finished."""
        return self.waiting / self.throughput if self.throughput > 0 else math.inf if self.waiting else 0.0

    @property
    def quiet_waits(self) -> float:
        """How long quiet tenants' messages wait on average (seconds), by Little's law of them alone, in whatever order
        consumers take them; infinite where they are not told apart."""
        if self.quiet_ready is None or not self.quiet_rate:
            return math.inf
        ready = self.backlog if self.ready is None else self.ready
        return self.quiet_ready * (self.waiting / ready if ready > 0 else 1.0) / self.quiet_rate

    @property
    def quiet_wait(self) -> float:
        """How long quiet tenants wait for their first attempt (seconds), by as much of their oldest age as is beyond
        doubt: all of it but what it may be too long by, or as far as what waits in the queue, and of theirs, confirms
        it. What is far older than whatever began lately was tried before: a retry, or a message that is stuck."""
        age, begun = self.quiet_age_seconds, math.inf if self.quiet_first_age is None else self.quiet_first_age
        confirmed = min(age, self.expected_wait, OLDEST_TO_MEAN * self.quiet_waits, WAITING_TO_BEGUN * begun)
        return max(min(age - AGE_RESOLUTION, begun), confirmed, 0.0)

    @property
    def max_min_share(self) -> float | None:
        """What the tenant is entitled to, in its own messages/s: what one that asks for everything gets of the
        throughput beside the others, each large one held to as much, and at least an equal part of it; None while
        nothing is finished.

        It is one of consumers' time, in messages of the queue's mean cost, and told in the tenant's own.
        """
        if self.active_tenants < 1 or self.throughput <= 0:
            return None
        small = max(0.0, self.others_rate * self.others_cost - sum(self.rivals))
        return max(self.throughput / self.active_tenants, share(self.throughput - small, self.rivals)) / self.cost
