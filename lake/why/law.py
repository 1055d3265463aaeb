"""The rise of a wait in parts that add up to it, by Little's law.

While messages wait, every consumer's slot is taken, and what is waiting grows by what arrives beyond what is begun:
ready(t₁) − ready(t₀) = ∫ (arrivals − starts) dt. With the capacity κ = slots × (1 − retries) ÷ service time that the
slots had as things were before, this is ∫ (arrivals − κ) + ∫ (κ − starts): what came beyond the capacity, and what the
capacity lost. By Little's law the slots that were taken on the way are starts × service time ÷ (1 − retries), so that
the loss is one of slots, of service time and of retries. They are told apart as ratios are in energy statistics, by the
logarithmic mean Divisia index (B. W. Ang, “The LMDI approach to decomposition analysis”, Energy Policy 33, 2005), which
leaves no rest. Who begins now came a wait ago, and waited for what was ready before it then: those messages ÷ the pace
at which they were begun since are its wait, in seconds.

What this does not account for – another order than first in, first out, messages that ended unread or were withheld –
is the unknown part. It is told, never spread over the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

#: Waiting has begun when what is ready was last below this part of what is ready now.
ONSET = 0.05
#: Slots are seen as taken over so many service times at least: a long job is told when it ends, all at once.
SMOOTHED = 3.0
#: A wait has risen when it is more than so many times as long as it was.
RISEN = 2.0


class Cause(StrEnum):
    """What makes messages wait."""

    ARRIVALS = "arrivals"
    SLOTS = "slots"
    SERVICE_TIME = "service time"
    RETRIES = "retries"
    PARTITION = "one partition"  # of the slots: lake.why.partitions
    THROTTLED = "throttled by us"  # lake.why.held
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Bin:
    """What happened on a queue in ``seconds`` up to ``end`` (unix seconds). Sums over its tenants."""

    end: int
    seconds: int
    arrivals: float = 0.0
    starts: float = 0.0  # first attempts
    retries: float = 0.0
    ended: float = 0.0  # attempts whose processing time is known
    busy_seconds: float = 0.0  # the sum of these times
    waited_seconds: float = 0.0  # ages of first attempts, summed
    waited: float = 0.0  # first attempts of known age


@dataclass(frozen=True, slots=True)
class Part:
    """One cause: the messages it made wait, and the seconds that they are. ``before``, ``now``: its own measure."""

    cause: Cause
    messages: float | None
    seconds: float
    before: float | None = None
    now: float | None = None


@dataclass(frozen=True, slots=True)
class Rise:
    """From ``wait_before`` at ``begun`` (unix seconds) to ``wait`` at ``end``; the parts' seconds add up to it.

    ``pace``: first attempts a second. No parts: it has not risen.
    """

    begun: int
    end: int
    wait_before: float
    wait: float
    pace: float
    parts: tuple[Part, ...] = ()

    @property
    def seconds(self) -> float:
        """By how much the wait rose."""
        return self.wait - self.wait_before


def explain(bins: Sequence[Bin], ready: float, *, edge: int = 2) -> Rise | None:
    """Why first attempts wait as they do in the last ``edge`` of ``bins``, which follow one another, the oldest first.

    ``ready``: messages that wait at the end of the last bin. None where nothing can be said: too few bins, no first
    attempt at either end, nothing begun at the end (it stands still: there is no pace to turn messages into seconds).
    """
    if len(bins) <= 2 * edge:
        return None
    levels = _levels(bins, ready)
    wait = wait_of(bins[-edge:])
    if wait is None or _rate(bins[-edge:], "starts") == 0:
        return None
    came = max(edge, len(bins) - max(1, round(wait / bins[-1].seconds)))  # the bin in which who begins now came
    at = _onset(levels[: came + 1], edge)
    wait_before, pace = wait_of(bins[max(0, at - edge) : at]), _rate(bins[came:], "starts")
    if wait_before is None or pace == 0:
        return None
    rise = Rise(bins[at - 1].end, bins[-1].end, wait_before, wait, pace)
    if wait <= RISEN * wait_before or levels[came] < 1 or came <= at:
        return rise
    told = [
        Part(cause, each, each / pace, was, is_) for cause, each, was, is_ in _parts(bins[:at], bins[at:came], bins)
    ]
    told.append(Part(Cause.UNKNOWN, None, rise.seconds - sum(part.seconds for part in told)))
    return replace(rise, parts=tuple(told))


def idle(bins: Sequence[Bin], some: Sequence[Bin]) -> float | None:
    """First attempts more that could have begun in ``some`` of ``bins`` with the most slots that were seen at work;
    None where nobody told how long any attempt took."""
    service = _service(some) or _service(bins)
    if service is None:
        return None
    seconds = sum(each.seconds for each in some)
    unused = _most_busy(bins, service) * seconds - sum(each.busy_seconds for each in some)
    return max(0.0, unused) * (1 - _retried(some)) / service


def _parts(
    before: Sequence[Bin], between: Sequence[Bin], bins: Sequence[Bin]
) -> list[tuple[Cause, float, float | None, float | None]]:
    """Messages that each cause made wait ``between``, and what it was before and then."""
    seconds = sum(each.seconds for each in between)
    arrivals, starts = _rate(between, "arrivals"), _rate(between, "starts")
    service = _service(between) or _service(before)
    usual = _service(before) or service
    if service is None or usual is None:  # nobody told how long anything took: slots cannot be told from service
        return [(Cause.ARRIVALS, (arrivals - starts) * seconds, _rate(before, "arrivals"), arrivals)]
    good, usual_good = 1 - _retried(between), 1 - _retried(before)
    taken = starts * service / good  # Little's law
    slots = max(_most_busy(bins, service), taken)
    capacity = slots * usual_good / usual
    lost = (
        (Cause.SLOTS, slots, taken, slots, taken),
        (Cause.SERVICE_TIME, service, usual, usual, service),
        (Cause.RETRIES, usual_good, good, 1 - usual_good, 1 - good),
    )
    mean = _logarithmic_mean(capacity, starts)
    found: list[tuple[Cause, float, float | None, float | None]] = [
        (Cause.ARRIVALS, (arrivals - capacity) * seconds, _rate(before, "arrivals"), arrivals)
    ]
    for cause, up, down, was, is_ in lost:
        if starts > 0:
            share = mean * math.log(up / down)
        else:  # all the capacity is gone, and with it every slot
            share = capacity if cause is Cause.SLOTS else 0.0
        found.append((cause, share * seconds, was, is_))
    return found


def _levels(bins: Sequence[Bin], ready: float) -> list[float]:
    """What was ready before each bin, and after the last: backwards from now, by what came and what was begun."""
    levels = [ready]
    for each in reversed(bins):
        levels.append(levels[-1] - each.arrivals + each.starts)
    return levels[::-1]


def _onset(levels: Sequence[float], edge: int) -> int:
    """The bin with which the waiting began: after the last moment at which next to nothing, or the least, waited."""
    places = range(edge, max(edge + 1, len(levels)))
    low = [place for place in places if levels[place] <= ONSET * levels[-1]]
    return low[-1] if low else min(reversed(places), key=lambda place: levels[place])


def wait_of(bins: Sequence[Bin]) -> float | None:
    """How long first attempts waited, on average (seconds); None where there was none of known age."""
    waited = sum(each.waited for each in bins)
    return sum(each.waited_seconds for each in bins) / waited if waited else None


def _rate(bins: Sequence[Bin], name: str) -> float:
    seconds = sum(each.seconds for each in bins)
    return float(sum(getattr(each, name) for each in bins) / seconds) if seconds else 0.0


def _service(bins: Sequence[Bin]) -> float | None:
    """The mean time of an attempt."""
    ended, busy = sum(each.ended for each in bins), sum(each.busy_seconds for each in bins)
    return busy / ended if ended and busy else None


def _retried(bins: Sequence[Bin]) -> float:
    """The part of all attempts that were not the first."""
    starts, retries = sum(each.starts for each in bins), sum(each.retries for each in bins)
    return retries / (starts + retries) if starts else 0.0


def _most_busy(bins: Sequence[Bin], service: float) -> float:
    """The most slots that were seen taken at once."""
    width = min(len(bins), max(2, math.ceil(SMOOTHED * service / bins[0].seconds)))
    return max(_rate(bins[at : at + width], "busy_seconds") for at in range(len(bins) - width + 1))


def _logarithmic_mean(one: float, other: float) -> float:
    if one <= 0 or other <= 0:
        return 0.0
    return one if math.isclose(one, other, rel_tol=1e-12) else (one - other) / math.log(one / other)
