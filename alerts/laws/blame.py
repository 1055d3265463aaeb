"""Whether a tenant's own doing made a queue late: who rose, and by how much of what the queue cannot take."""

from __future__ import annotations

import math

from alerts.laws.observation import Observation

#: What was usual is told by so many seconds at the least: after as many seconds of trouble as it is long, a shorter
#: memory calls the trouble usual, and who floods, and whose consumers slowed down, can no longer be told.
USUAL_SECONDS = 60
#: A tenant that sends no more than this part above what it did sends as always.
RISEN = 0.25
#: Rates are Poisson counts over so many seconds at the least (the controller's shortest look back); a rise counts from
#: so many standard deviations on.
SHORTEST_SECONDS, DEVIATIONS = 2.0, 3.0
#: A tenant is beyond a share that is measured itself only by so many standard deviations of what was counted.
SIGNIFICANT = 2.0
#: Who sends more than usual by so many standard deviations has risen, however shortly that is seen.
ABRUPT = 5.0


def by_chance(seen: Observation, harmed_seconds: float) -> float:
    """By how much arrivals may exceed the share by chance (messages/s): counts vary by the root of what they count.

    Until harm has lasted as long as counts are taken over, they are partly of a time in which not all servers were
    busy, so that the share seems less than it is; and a wait that soon ends again is mostly chance itself.
    """
    if seen.recent_seconds <= 0:
        return 0.0
    varying = seen.arrival_rate + (seen.throughput + seen.others_rate * seen.others_cost**2) / seen.cost**2
    deviations = DEVIATIONS if harmed_seconds < seen.recent_seconds else SIGNIFICANT
    return deviations * math.sqrt(varying / seen.recent_seconds)


def rose_abruptly(lately: Observation, usual: float | None) -> bool:
    """Whether a tenant that sent ``usual`` messages/s has begun, within the last seconds, to send more than its share.

    Beside counts over so short a time a share is hardly known. But of what it sent itself before chance makes no
    multiple: who is as large as ever is not judged by this, nor who grows little by little.
    """
    share = lately.max_min_share
    if usual is None or share is None or lately.recent_seconds <= 0:
        return False
    risen = lately.arrival_rate - usual
    abruptly = risen > max(
        RISEN * usual, ABRUPT * math.sqrt(max(usual, 1 / lately.recent_seconds) / lately.recent_seconds)
    )
    return abruptly and lately.arrival_rate > share + by_chance(lately, math.inf)


def sends_as_always(sends: float, usual: float, others: float, others_usual: float, throughput: float) -> bool:
    """Whether a tenant sends what it usually does, and the others' rise is what the queue cannot take. All messages/s.

    ``others`` is the most that all others together have sent since the queue is late.
    """
    risen, others_risen = sends - usual, others - others_usual
    excess = sends + others - throughput
    as_always = risen <= max(RISEN * usual, _noise(usual))
    return as_always and others_risen > max(risen, excess / 2, _noise(others_usual))


def _noise(rate: float) -> float:
    return DEVIATIONS * math.sqrt(rate / SHORTEST_SECONDS)
