"""``kind = "kafka"``: a Kafka cluster: its groups and topics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from brokers.kafka.settings import KafkaCluster
from brokers.settings import Settings
from collectors.broker import Broker
from collectors.kafka.tap.settings import TapSettings


class Selection(Settings):
    """Names to read: those that match a glob of ``include`` and none of ``exclude``."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()


class StatusSettings(Settings):
    """How a group's commits are judged (the rules are in collectors/kafka/status.py)."""

    window: int = Field(default=10, ge=3, le=60, description="commits of each partition that are judged together")
    interval: float = Field(default=15.0, ge=0.1, description="fewest seconds between two commits that are kept")
    allowed_lag: int = Field(default=0, ge=0, description="a lag up to this is none")

    @property
    def patience(self) -> int:
        """Milliseconds that a whole window takes."""
        return round(self.interval * 1000) * self.window


class KafkaBroker(KafkaCluster, Broker):
    """One Kafka cluster, reached by any of its brokers."""

    kind: Literal["kafka"] = "kafka"
    groups: Selection = Selection()
    topics: Selection = Selection()
    unread_topics: bool = Field(default=True, description="sample topics that no group reads, too")
    lag_in_time: bool = Field(default=True, description="read the record at each lagging committed offset for its time")
    head_bytes: int = Field(
        default=8 << 20, ge=1 << 20, description="most bytes that reading those records may bring in one cycle"
    )
    read_committed: tuple[str, ...] = Field(
        default=(), description="globs of groups that read committed records only: their end is the last stable offset"
    )
    uncommitted: dict[str, Literal["unknown", "earliest", "latest"]] = Field(
        default={},
        description="glob of groups → where they begin on a partition without a commit, their auto.offset.reset; "
        "the first that matches",
    )
    dead_letters: dict[str, str] = Field(default={}, description="dead-letter topic → the topic that it serves")
    status: StatusSettings = StatusSettings()
    tap: TapSettings = TapSettings()
