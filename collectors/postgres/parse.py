"""From tallies to samples: pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from brokers.tenants import Rule
from collectors.postgres.counting import Dead, Queue, age, shares
from collectors.postgres.layouts.base import Layout
from collectors.samples import NO_LOG, Sample, status_of

_NOT_COUNTED = "libraries count no more than the jobs that are there"
_UNTOLD = {
    "polls_total": "the library's polls are not counted",
    "empty_polls_total": "the library's polls are not counted",
    "published_total": _NOT_COUNTED,
    "delivered_total": _NOT_COUNTED,
    "acked_total": _NOT_COUNTED,
    "redelivered_total": _NOT_COUNTED,
    "in_flight_limit": "workers have limits, queues have none",
    "prefetch": "each worker chooses its own",
    "visibility_timeout_seconds": "each worker chooses its own",
    "consumer_utilisation_ratio": "not kept in the database",
    "publish_latency_seconds": "not probed: a probe would write to the user's database",
    "retention_margin": "nothing that waits is deleted by age or number",
    "status": "not judged",
    "lost_total": "nothing that waits is deleted",
    **NO_LOG,
}
_NO_ATTEMPTS = "this version of the library does not count attempts"
_DEAD = "these jobs have ended: nobody takes them"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a queue beside its jobs; ``consumers`` may be a reason."""

    paused: bool | None = None
    dead_letter_for: str | None = None
    consumers: int | str = ""
    no_running: str | None = None
    no_state: str = ""
    rules: tuple[Rule, ...] = ()


def sample(layout: Layout, name: str, queue: Queue, facts: Facts, now: float) -> Sample:
    """One queue at ``now``, in seconds since 1970 on the database's clock."""
    whole, missing = queue.whole, dict(_UNTOLD)
    running = facts.no_running is None
    if facts.no_running is not None:
        missing |= dict.fromkeys(("in_flight", "oldest_in_flight_age_seconds"), facts.no_running)
    began: float | None = age(now, whole.began)
    if running and whole.running and whole.began is None:
        began = None
        missing["oldest_in_flight_age_seconds"] = layout.untold.get(
            "oldest_in_flight_age_seconds", "when it began is not kept"
        )
    if not whole.numbered:
        missing |= dict.fromkeys(("retrying", "oldest_first_attempt_age_seconds"), _NO_ATTEMPTS)
    if isinstance(facts.consumers, str):
        missing["consumers"] = facts.consumers
    if facts.paused is None:
        missing["state"] = facts.no_state
    state = {True: "paused", False: "active", None: None}[facts.paused]
    return Sample(
        name,
        round(now * 1e6),
        depth=whole.ready,
        in_flight=whole.running if running else None,
        delayed=whole.delayed,
        oldest_age_seconds=age(now, whole.since),
        retrying=whole.retrying if whole.numbered else None,
        oldest_first_attempt_age_seconds=age(now, whole.fresh) if whole.numbered else None,
        oldest_in_flight_age_seconds=began if running else None,
        consumers=facts.consumers if isinstance(facts.consumers, int) else None,
        dead_letter_for=facts.dead_letter_for,
        queue_type=layout.name,
        state=state,
        status=status_of(state, missing),
        unavailable=missing,
        tenants=shares(queue, now, running) if facts.rules else None,
    )


def dead_sample(layout: Layout, name: str, of: str, dead: Dead, now: float) -> Sample:
    """What is dead of queue ``of``; its age is that of the job that died first."""
    return Sample(
        name,
        round(now * 1e6),
        depth=dead.number,
        in_flight=0,
        delayed=0,
        retrying=0,
        oldest_age_seconds=age(now, dead.since),
        oldest_first_attempt_age_seconds=0.0,
        oldest_in_flight_age_seconds=0.0,
        dead_letter_for=of,
        queue_type=layout.name,
        unavailable=_UNTOLD | {"consumers": _DEAD, "state": _DEAD},
    )


def dated(sample: Sample, staleness: float | None) -> Sample:
    """``sample`` as old as the server that told it is behind its primary; None is not known."""
    if staleness == 0 or sample.staleness_seconds is None:
        return sample
    why = {"staleness_seconds": "this standby has heard of no primary since it started"} if staleness is None else {}
    return replace(sample, staleness_seconds=staleness, unavailable={**sample.unavailable, **why})
