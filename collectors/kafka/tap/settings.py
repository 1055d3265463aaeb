"""``[collect.brokers.tap]`` of a Kafka cluster: which topics to follow record by record, and for which groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from brokers.settings import Settings
from brokers.tenants import Older, TenantRules, newer, only, parse
from collectors.broker import each_once, named


class _Older(Older):
    """A header, and the whole key where that is absent."""

    tenant_header: str | None = "tenant"
    tenant_key: bool = False

    def rules(self) -> list[str]:
        """A record's key is a message's."""
        header = [f"header:{self.tenant_header}"] if self.tenant_header else []
        return [*header, "key:{tenant}"] if self.tenant_key else header


class TapTopic(Settings):
    """One topic to follow; a plain string in the list is its name."""

    name: str = Field(min_length=1)
    queue: str | None = Field(default=None, description="the queue's name in Sojourn; the topic's own unless set")
    groups: tuple[str, ...] = Field(default=(), description="consumer groups whose commits end its messages")
    tenant: Annotated[TenantRules, only("header", "key", "json", "queue")] = Field(
        default=(parse("header:tenant"),),
        description="where a record names its tenant; key is the record's, json begins at its value",
    )

    @model_validator(mode="before")
    @classmethod
    def _newer(cls, value: Any) -> Any:
        return newer(value, _Older)

    @property
    def queue_name(self) -> str:
        """The name under which the topic's records are told."""
        return self.queue or self.name

    @field_validator("groups")
    @classmethod
    def _each_once(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        each_once(list(groups))
        return groups


class TapSettings(Settings):
    """The tap reads by itself, in no group, and changes nothing at the cluster."""

    topics: tuple[Annotated[TapTopic, BeforeValidator(named)], ...] = ()
    read_committed: bool = Field(default=True, description="leave out what aborted transactions wrote")
    start: Literal["backlog", "earliest", "latest"] = Field(
        default="backlog", description="where a topic is begun: where its groups are (else at its end), or at an end"
    )
    first_look_limit: int = Field(
        default=1_000_000, ge=0, description="records of a partition that are told when it is first followed"
    )
    poll_interval: float = Field(
        default=0.2, ge=0.02, le=5, description="seconds between two looks at what the groups committed"
    )
    max_unfinished: int = Field(
        default=500_000, ge=1000, description="unfinished records of a partition held in memory; others are read again"
    )

    @field_validator("topics")
    @classmethod
    def _each_once(cls, topics: tuple[TapTopic, ...]) -> tuple[TapTopic, ...]:
        each_once([topic.name for topic in topics])
        each_once([topic.queue_name for topic in topics])
        return topics
