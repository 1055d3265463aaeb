"""What CloudWatch adds to the samples. Pure: what to ask, and what its answers amount to.

From the Amazon SQS Developer Guide, "Available CloudWatch metrics for Amazon SQS": a value each minute, and none of a
queue that has not been active. ApproximateAgeOfOldestMessage leaves out, on standard queues, the messages that were
received three times or more and not deleted; in a dead-letter queue it begins when the message was moved there.
Absence is unknown, and never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PERIOD = 60
#: The most metrics of one GetMetricData (Amazon CloudWatch API Reference).
BATCH = 500
#: A minute's value may come minutes late and still grow: so far back is asked again each time.
_LOOK_BACK = 600


class Metric(NamedTuple):
    """One metric of CloudWatch: the statistic that we ask for, and the sample's field that it becomes."""

    name: str
    statistic: str
    field: str


METRICS: Mapping[str, Metric] = {
    "age": Metric("ApproximateAgeOfOldestMessage", "Maximum", "oldest_age_seconds"),
    "empty_receives": Metric("NumberOfEmptyReceives", "Sum", "empty_polls_total"),
    "sent": Metric("NumberOfMessagesSent", "Sum", "published_total"),
    "received": Metric("NumberOfMessagesReceived", "Sum", "delivered_total"),
    "deleted": Metric("NumberOfMessagesDeleted", "Sum", "acked_total"),
}
FIELDS = tuple(metric.field for metric in METRICS.values())


@dataclass(frozen=True, slots=True)
class Told:
    """CloudWatch's part of one sample: values by field; for what is missing its reason, or else the one of all."""

    values: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    reason: str = "told by CloudWatch alone, which is not enabled"


class Asked(NamedTuple):
    """One call: its body, and which queue and metric each result's id stands for."""

    body: dict[str, Any]
    meant: dict[str, tuple[str, Metric]]


class Point(NamedTuple):
    """One minute's value; ``at`` is the minute's begin in seconds since 1970."""

    at: int
    value: float


def window(now: float, interval: float) -> tuple[int, int]:
    """The begin and end of what to ask for, in whole periods."""
    back = max(_LOOK_BACK, interval + _LOOK_BACK / 2)
    return int(now - back) // PERIOD * PERIOD, (int(now) // PERIOD + 1) * PERIOD


def queries(queues: Iterable[str], metrics: Iterable[str], begin: int, end: int) -> Iterator[Asked]:
    """The calls that read ``metrics`` of ``queues``, at most :data:`BATCH` in each."""
    wanted = [(queue, METRICS[name]) for queue in queues for name in metrics]
    for start in range(0, len(wanted), BATCH):
        meant = {f"m{index}": one for index, one in enumerate(wanted[start : start + BATCH])}
        asked = [_query(key, queue, metric) for key, (queue, metric) in meant.items()]
        body = {"MetricDataQueries": asked, "StartTime": begin, "EndTime": end, "ScanBy": "TimestampAscending"}
        yield Asked(body, meant)


def _query(key: str, queue: str, metric: Metric) -> dict[str, Any]:
    named = {
        "Namespace": "AWS/SQS",
        "MetricName": metric.name,
        "Dimensions": [{"Name": "QueueName", "Value": queue}],
    }
    return {"Id": key, "MetricStat": {"Metric": named, "Period": PERIOD, "Stat": metric.statistic}, "ReturnData": True}


def results(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Point]]]:
    """Each result's id, status and values. What is not of the documented shape is left out."""
    for result in _list(answer.get("MetricDataResults")):
        if isinstance(result, dict) and isinstance(result.get("Id"), str):
            pairs = zip(_list(result.get("Timestamps")), _list(result.get("Values")), strict=False)
            points = [Point(int(at), float(value)) for at, value in pairs if _number(at) and _number(value)]
            yield result["Id"], str(result.get("StatusCode", "Complete")), [one for one in points if one.value >= 0]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18


class Totals:
    """What CloudWatch has told so far: the newest age of each queue, and totals since the minute ``since``.

    A minute's sum is asked for again while it may still grow, and counted once: only its growth is added. Minutes
    before ``since`` (seconds since 1970) are not: a collector that starts again would count them twice.
    """

    def __init__(self, since: int = 0) -> None:
        self._since = since
        self._series: dict[tuple[str, str], _Series] = {}
        self._refused: dict[tuple[str, str], str] = {}

    def take(self, queue: str, metric: Metric, status: str, points: Sequence[Point], begin: int) -> None:
        """One result for the window that starts at ``begin``; pages of one window are taken one after the other."""
        key = queue, metric.field
        if status in ("Forbidden", "InternalError"):
            self._refused[key] = f"CloudWatch: {status}"
            return
        self._refused.pop(key, None)
        series = self._series.get(key)
        if series is None:
            if not points:
                return
            series = self._series[key] = _Series()
        series.take(points, begin, self._since, adds=metric.statistic == "Sum")

    def told(self, queue: str, metrics: Iterable[str]) -> Told:
        """The part of ``queue``'s sample: nothing where the window held no value."""
        values: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        asked = [METRICS[name].field for name in metrics]
        for name in asked:
            series = self._series.get((queue, name))
            if refused := self._refused.get((queue, name)):
                reasons[name] = refused
            elif series is None or series.newest is None:
                reasons[name] = "CloudWatch holds no value of the last minutes"
            elif name == "oldest_age_seconds":
                values[name] = series.newest.value
            else:
                values[name] = int(series.total)
        return Told(values, reasons, "not among the metrics that CloudWatch is asked for")

    def keep(self, queues: Iterable[str]) -> None:
        """Forget the queues that are gone."""
        kept = set(queues)
        for held in (self._series, self._refused):
            for key in [key for key in held if key[0] not in kept]:
                del held[key]


@dataclass(slots=True)
class _Series:
    """One metric of one queue: minutes before ``floor`` are settled, ``counted`` holds the later ones above zero."""

    floor: int = 0
    newest: Point | None = None
    total: float = 0.0
    counted: dict[int, float] = field(default_factory=dict)

    def take(self, points: Sequence[Point], begin: int, since: int, *, adds: bool) -> None:
        self.floor = max(self.floor, begin)  # a clock set back must not count a minute twice
        for at in [at for at in self.counted if at < self.floor]:
            del self.counted[at]
        if self.newest is not None and self.newest.at < self.floor:
            self.newest = None
        for point in points:
            if point.at < self.floor:
                continue
            if self.newest is None or point.at >= self.newest.at:
                self.newest = point
            before = self.counted.get(point.at, 0.0)
            if adds and point.value > before and point.at >= since:
                self.total += point.value - before
                self.counted[point.at] = point.value
