"""How the analytics run: the ``[analyze]`` section of sojourn.toml."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from spark_analytics.landing.settings import TransportSettings
from spark_analytics.maintenance import Retention


class AnalyzeSettings(BaseModel):
    """Where Spark runs, how often it looks for new records, and how much it takes at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str = Field(default="local[2]", description="Spark master, as `local[2]` or `spark://host:7077`")
    driver_memory: str = Field(default="2g", pattern=r"^[1-9]\d*[mg]$", description="memory of Spark's Java process")
    trigger_interval_seconds: float = Field(default=0.2, ge=0, le=3600, description="pause between looks for records")
    max_bytes_per_trigger: int = Field(
        default=192 << 20,
        ge=1 << 16,
        description="bronze bytes in one batch: how much is new at once while catching up",
    )
    newest_first_after_bytes: int = Field(
        default=512 << 20,
        ge=0,
        description="more unread bronze bytes than this at the start: the newest first, history beside it; 0 = never",
    )
    driver_bytes: int = Field(
        default=256 << 20,
        ge=0,
        description="a batch of at most so many bytes is computed here, and so many of partials are folded anew here, "
        "else by Spark's executors",
    )
    most_tenants: int = Field(
        default=1_000_000, ge=1, description="tenants that are told apart; those that come later are `other`"
    )
    shuffle_partitions: int = Field(default=2, ge=1, le=10_000, description="tasks of an aggregation; the core count")
    maintain_every: int = Field(
        default=300, ge=0, description="batches between two rounds of maintenance beside the stream; 0 = never"
    )
    seconds_kept_minutes: int = Field(default=15, ge=5, description="how long history is told by the second")
    minutes_kept_hours: int = Field(default=24, ge=2, description="how long it is told by the minute; then by the hour")
    hours_kept_days: int = Field(
        default=400, ge=2, le=10_000, description="how long it is told at all; what is older becomes an opening balance"
    )
    marks_kept_hours: int = Field(
        default=48, ge=1, description="how long a settled failure is remembered: how late its message's events may come"
    )
    bronze_kept_days: int = Field(default=0, ge=0, description="days of records kept as they were written; 0 = all")
    replaced_kept_hours: int = Field(
        default=2,
        ge=1,
        le=24 * 365,
        description="how long replaced files and log entries stay: the reach of time travel, to any instant of the "
        "last 3,000 commits",
    )
    versions_kept_hours: int = Field(
        default=24,
        ge=0,
        le=24 * 31,
        description="the reach of time travel to every tenth minute; 0 = to none",
    )
    event_log_kept_minutes: int = Field(
        default=2,
        ge=1,
        description="how long log entries of the events' tables stay, of which there are several a second: Spark lists "
        "them all for each batch",
    )
    quick_start: bool = Field(
        default=False, description="start in half the time, catch up slower: for demonstrations and tests"
    )

    spark: dict[str, str] = Field(
        default_factory=dict, description="settings of Spark itself, as `spark.executor.memory`; they override ours"
    )
    transport: TransportSettings = TransportSettings()

    def retention(self) -> Retention:
        """How long each level of history is kept."""
        return Retention(
            seconds_for=timedelta(minutes=self.seconds_kept_minutes),
            minutes_for=timedelta(hours=self.minutes_kept_hours),
            hours_for=timedelta(days=self.hours_kept_days),
            marks_for=timedelta(hours=self.marks_kept_hours),
            bronze_for=timedelta(days=self.bronze_kept_days) if self.bronze_kept_days else None,
            replaced_for=timedelta(hours=self.replaced_kept_hours),
            versions_for=timedelta(hours=self.versions_kept_hours),
            event_log_for=timedelta(minutes=self.event_log_kept_minutes),
        )
