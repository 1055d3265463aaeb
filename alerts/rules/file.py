"""A rule file: groups of rules, as Prometheus has them, and of objectives that are made into rules."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from alerts.durations import Duration
from alerts.objectives import SloEntry
from alerts.rules.model import LabelName, RuleEntry, Text


class GroupEntry(BaseModel):
    """One entry under ``groups:``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    interval: Duration | None = None
    query_offset: Duration = timedelta(0)
    limit: int = Field(default=0, ge=0)
    labels: dict[LabelName, Text] = Field(default_factory=dict)
    rules: tuple[RuleEntry, ...] = ()
    slos: tuple[SloEntry, ...] = ()


class RuleFile(BaseModel):
    """A whole rule file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    groups: tuple[GroupEntry, ...]
