"""How the analytics run: the ``[analyze]`` section of sojourn.toml."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
    compact_every: int = Field(default=500, ge=0, description="batches between compactions of gold; 0 = never")
    quick_start: bool = Field(
        default=False, description="start in half the time, catch up slower: for demonstrations and tests"
    )
