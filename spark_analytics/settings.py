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
        default=32 << 20, ge=1 << 16, description="bronze bytes in one batch: bounds memory while catching up"
    )
    shuffle_partitions: int = Field(default=2, ge=1, le=10_000, description="tasks of an aggregation; the core count")
    maintain_every: int = Field(
        default=300, ge=0, description="batches between roll-ups and compactions of gold; 0 = never"
    )
    seconds_kept_minutes: int = Field(default=15, ge=5, description="how long history is told by the second")
    minutes_kept_hours: int = Field(default=24, ge=2, description="how long it is told by the minute; then by the hour")
    quick_start: bool = Field(
        default=False, description="start in half the time, catch up slower: for demonstrations and tests"
    )

    transport: TransportSettings = TransportSettings()

    def retention(self) -> Retention:
        """How long each level of history is kept."""
        return Retention(timedelta(minutes=self.seconds_kept_minutes), timedelta(hours=self.minutes_kept_hours))
