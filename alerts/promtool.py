"""Series and expectations as ``promtool test rules`` writes them, over the columns of views.

A series ``queue_health_now:depth{broker="nats",queue="orders"}`` fills the column ``depth`` of one row of that view;
its labels are the row's text columns, and series of the same view and labels share a row. Source of the notation:
Prometheus, "Unit testing for rules".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from alerts.answer import is_number
from alerts.durations import Duration
from alerts.models import AlertInstance
from alerts.rules.expression import schema_of
from alerts.rules.model import Text
from lake.errors import UserError

#: For so long a series tells its last sample, as PromQL's look-back has it.
LOOK_BACK = timedelta(minutes=5)
MOST_SAMPLES = 1_000_000
_LABEL = r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*'
_SERIES = re.compile(rf"\s*(\w+):(\w+)\s*(?:\{{((?:{_LABEL},?)*)\}})?\s*", re.ASCII)
_LABELS = re.compile(_LABEL + ",?", re.ASCII)
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[nN]a[nN]|[iI]nf)"
_REPEATED = re.compile(rf"({_NUMBER})(?:([-+])({_NUMBER}))?x(\d+)", re.ASCII)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InputSeries(_Model):
    """One column of one row over time."""

    series: str
    values: Text


class ExpectedFiring(_Model):
    """An alert that must fire, with exactly these labels (``alertname`` left out) and annotations."""

    exp_labels: dict[str, Text] = Field(default_factory=dict)
    exp_annotations: dict[str, Text] = Field(default_factory=dict)


class AlertRuleTest(_Model):
    """All alerts of one name that fire at ``eval_time``, or at the last evaluation before it."""

    eval_time: Duration
    alertname: str
    exp_alerts: tuple[ExpectedFiring, ...] = ()


class _Stale:
    pass


STALE = _Stale()
Sample = float | None | _Stale


@dataclass(frozen=True, slots=True)
class Series:
    """A column of the row of ``view`` with ``labels``; a sample each ``interval``, None where there is none."""

    view: str
    column: str
    labels: Mapping[str, str]
    samples: Sequence[Sample]
    interval: timedelta

    def at(self, time: timedelta) -> float | None:
        """What it tells at ``time`` from the start; None where nothing."""
        newest = min(time // self.interval, len(self.samples) - 1)
        for index in range(newest, -1, -1):
            sample = self.samples[index]
            if sample is STALE or time - index * self.interval >= LOOK_BACK:
                return None
            if isinstance(sample, float):
                return sample
        return None


def series_of(entry: InputSeries, interval: timedelta) -> Series:
    """``entry`` read; UserError names what cannot be."""
    match = _SERIES.fullmatch(entry.series)
    if match is None:
        raise UserError(
            f"{entry.series!r} is no series here", 'write view:column{label="value"}: queue_health_now:depth{queue="q"}'
        )
    view, column = match[1], match[2]
    try:
        schema = schema_of(view)
    except KeyError:
        raise UserError(f"{entry.series}: there is no view {view}", "see docs/views.md") from None
    labels = {name: value.replace('\\"', '"').replace("\\\\", "\\") for name, value in _LABELS.findall(match[3] or "")}
    for name in (column, *labels):
        if name not in schema.names:
            raise UserError(
                f"{entry.series}: {view} has no column {name!r}", f"its columns are {', '.join(schema.names)}"
            )
    if any(not pa.types.is_string(schema.field(name).type) for name in labels):
        raise UserError(f"{entry.series}: a label is a text column", "give numbers as series of their own")
    kind = schema.field(column).type
    if not (is_number(kind) or pa.types.is_timestamp(kind)):
        raise UserError(f"{entry.series}: {column} is no number", "give texts as labels")
    return Series(view, column, labels, samples(entry.values), interval)


def samples(values: str) -> list[Sample]:
    """The samples of promtool's expanding notation: ``1 2+1x3 _ _x2 stale``; UserError."""
    found: list[Sample] = []
    for word in values.split():
        found += _expanded(word)
        if len(found) > MOST_SAMPLES:
            raise UserError(f"a series has more than {MOST_SAMPLES:,} samples", "shorten it")
    return found


def _expanded(word: str) -> list[Sample]:
    if word == "stale":
        return [STALE]
    if word == "_":
        return [None]
    if word.startswith("_x") and word[2:].isdecimal():
        return [None] * min(int(word[2:]), MOST_SAMPLES + 1)
    if match := _REPEATED.fullmatch(word):
        first, times = float(match[1]), min(int(match[4]), MOST_SAMPLES)
        by = float(match[2] + match[3].lstrip("+")) if match[3] else 0.0
        return [first + by * number for number in range(times + 1)]
    try:
        return [float(word)]
    except ValueError:
        raise UserError(f"{word!r} is no sample", "write 1, 2+3x4, 5x6, _, _x7 or stale") from None


def rows_at(series: Iterable[Series], at: timedelta, start: datetime) -> dict[str, list[dict[str, Any]]]:
    """The rows of each view at ``at``: of every set of labels one, where any of its series tells something."""
    rows: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, Any]] = {}
    for one in series:
        value = one.at(at)
        if value is not None:
            row = rows.setdefault((one.view, tuple(sorted(one.labels.items()))), dict(one.labels))
            row[one.column] = _typed(value, schema_of(one.view).field(one.column).type, one, start)
    found: dict[str, list[dict[str, Any]]] = {}
    for (view, _), row in rows.items():
        found.setdefault(view, []).append(row)
    return found


def _typed(value: float, kind: pa.DataType, series: Series, start: datetime) -> Any:
    if math.isnan(value):
        return None
    if pa.types.is_timestamp(kind):
        return start + timedelta(seconds=value)
    if pa.types.is_boolean(kind):
        return bool(value)
    if pa.types.is_integer(kind):
        if not value.is_integer():
            raise UserError(f"{series.view}:{series.column} holds whole numbers, not {value:g}", "correct its values")
        return int(value)
    return value


def differences(wanted: AlertRuleTest, standing: Iterable[AlertInstance]) -> list[str]:
    """What of ``wanted`` is not so; promtool compares labels and annotations whole."""
    left = [_told(alert) for alert in standing if alert.rule == wanted.alertname and alert.state.is_firing]
    missing = []
    for one in wanted.exp_alerts:
        expected = (dict(one.exp_labels), dict(one.exp_annotations))
        if expected in left:
            left.remove(expected)
        else:
            missing.append(expected)
    return [f"{wanted.alertname}: expected {_shown(one)}, which does not fire" for one in missing] + [
        f"{wanted.alertname}: fires, and was not expected: {_shown(one)}" for one in left
    ]


def _told(alert: AlertInstance) -> tuple[dict[str, str], dict[str, str]]:
    labels = {name: value for name, value in alert.labels.items() if name != "alertname"}
    return labels, dict(alert.annotations)


def _shown(alert: tuple[dict[str, str], dict[str, str]]) -> str:
    return f"labels {alert[0]}, annotations {alert[1]}"
