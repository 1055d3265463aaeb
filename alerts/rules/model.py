"""A rule as the engine runs it, and as a file holds it: Prometheus' shape plus ``no_data`` and ``actions``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from alerts.durations import Duration, parse_duration


class NoData(StrEnum):
    """What a rule does while its data is stale; that a query returns no rows is not "no data"."""

    KEEP = "keep"  # leave every alert as it was: missing data must not resolve
    ALERT = "alert"  # keep them, and raise one alert that says so
    OK = "ok"  # as if no row matched


def _text(value: object) -> object:
    """YAML reads ``1`` and ``true`` as numbers and booleans where a label needs text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text)]
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


def _number(value: object) -> object:
    """A number, or a duration in seconds."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return parse_duration(value).total_seconds()
    return value


ThresholdName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]
#: What ``expr`` names as ``:name``: a number, or a duration, which counts as seconds.
Threshold = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]


class AlertingEntry(BaseModel):
    """What an entry that alerts says, whatever it alerts of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hold: Duration = Field(default=timedelta(0), alias="for")
    keep_firing_for: Duration = timedelta(0)
    labels: dict[LabelName, Text] = Field(default_factory=dict)
    annotations: dict[LabelName, Text] = Field(default_factory=dict)
    no_data: NoData = NoData.KEEP
    actions: tuple[str, ...] = ()


class RuleEntry(AlertingEntry):
    """One entry under ``rules:``."""

    alert: str = Field(min_length=1)
    expr: str = Field(min_length=1)
    resolve: str | None = Field(default=None, min_length=1)
    thresholds: dict[ThresholdName, Threshold] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """One alerting rule, with what its group adds.

    What fires ends when ``resolve`` returns a row of its labels; None: when ``expr`` returns none.

    ``interval`` None means: evaluated whenever there is new data. ``tables`` are the views and tables that it
    reads, ``limit`` the most alerts it may have (0 = any number), ``source`` the file it stands in.
    """

    group: str
    name: str
    expr: str
    hold: timedelta = timedelta(0)
    keep_firing_for: timedelta = timedelta(0)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    no_data: NoData = NoData.KEEP
    actions: tuple[str, ...] = ()
    interval: timedelta | None = None
    query_offset: timedelta = timedelta(0)
    limit: int = 0
    tables: frozenset[str] = frozenset()
    source: str = ""
    resolve: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the rule across restarts: group and name."""
        return self.group, self.name
