"""What KEDA is told: how many consumers a queue should have, or why that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from alerts.control.advisor import Capacity
from alerts.control.keda.messages import GetMetricSpecResponse, GetMetricsResponse, IsActiveResponse

METRIC = "sojourn-advised-consumers"


class Refused(Exception):
    """A question that has no answer; ``code`` is the name of a gRPC status."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def advised(metadata: Mapping[str, str], capacities: Iterable[Capacity]) -> int:
    """How many consumers the queue that a trigger's ``metadata`` names should have.

    Refused where it names none, or one without ``[[alert.control.capacity]]``, or where that is unknown: KEDA then
    counts a failure, upon which the ScaledObject's ``fallback`` counts.
    """
    broker, queue = metadata.get("broker", ""), metadata.get("queue", "")
    if not broker or not queue:
        raise Refused("INVALID_ARGUMENT", "the trigger's metadata must name broker and queue")
    place = (broker, queue, metadata.get("subscriber", ""))
    for one in capacities:
        if one.place == place:
            if one.advice.consumers is None:
                raise Refused("UNAVAILABLE", f"how many consumers it needs is not known: {one.advice.reason}")
            return one.advice.consumers
    raise Refused("NOT_FOUND", f"no [[alert.control.capacity]] is for {'/'.join(filter(None, place))}")


def activity(consumers: int) -> Any:
    """Whether there should be any consumers at all."""
    return IsActiveResponse(result=consumers > 0)


def spec() -> Any:
    """One replica for each that is advised."""
    response = GetMetricSpecResponse()
    response.metricSpecs.add(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
    return response


def metrics(consumers: int) -> Any:
    """The number that the autoscaler divides by :func:`spec`'s one."""
    response = GetMetricsResponse()
    response.metricValues.add(metricName=METRIC, metricValue=consumers, metricValueFloat=float(consumers))
    return response
