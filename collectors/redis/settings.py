"""``kind = "redis"``: a Redis server, and in which layouts its queues are kept there."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.redis.settings import RedisServer
from brokers.settings import Settings, without_secrets
from brokers.tenants import TenantRules, only
from collectors.broker import NetworkBroker
from lake.secret import Secret

#: Where a job that is a document, or its queue, names the tenant.
DocumentTenant = Annotated[TenantRules, only("json", "queue")]


class DynoLayout(Settings):
    """The dyno-queues recipe: sorted sets ``<prefix>.QUEUE.…`` and ``<prefix>.UNACK.…``, scored by milliseconds."""

    prefix: str = Field(default="*", min_length=1, description="what the keys begin with; * finds every prefix")
    queues: tuple[str, ...] = Field(default=(), description="names or patterns (*, ?) of queues; empty: all")
    shards: tuple[str, ...] = Field(default=(), description="given with plain names: nothing is searched for")
    braces: bool = Field(
        default=True, description="keys of listed shards are QUEUE.{queue.shard}, not QUEUE.queue.shard"
    )
    unack_buckets: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="UNACK sets of each shard, where braces are; unset: those that are found",
    )
    forget_after: float = Field(
        default=3600, gt=0, description="seconds for which a queue without keys is an empty queue, not a deleted one"
    )

    @property
    def listed(self) -> bool:
        """Whether every key is known from these settings alone."""
        plain = self.queues and not any(set(name) & set("*?[") for name in (*self.queues, self.prefix))
        return bool(plain and self.shards)

    @model_validator(mode="after")
    def _shards_of_something(self) -> DynoLayout:
        if self.shards and not self.listed:
            raise ValueError("shards need a plain prefix and plain names of queues beside them")
        return self


class StreamLayout(Settings):
    """Streams and their consumer groups."""

    keys: tuple[str, ...] = Field(default=(), description="the streams' keys; empty: those that match")
    match: str = Field(default="*", min_length=1, description="pattern of the keys to search for")
    pending_window: int = Field(
        default=100, ge=1, le=10_000, description="pending entries of a group, the oldest, whose deliveries are read"
    )
    backlogs: tuple[str, ...] = Field(
        default=(), description="patterns (*, ?) of keys whose entries wait though no group reads them: not a log"
    )


class CeleryLayout(Settings):
    """Celery's lists, one for each queue and priority, and its hash of unacknowledged messages."""

    queues: tuple[str, ...] = Field(default=(), description="names of queues; empty: those that Celery has bound")
    plumbing: bool = Field(
        default=False, description="sample Celery's own queues, too: pidbox, replies, results, events"
    )
    key_prefix: str = Field(default="", description="Celery's global_keyprefix")
    unacked_key: str = Field(default="unacked", min_length=1, description="Celery's unacked_key")
    separator: str = Field(default="\x06\x16", min_length=1, description="Celery's sep, between queue and priority")
    priority_steps: tuple[int, ...] = Field(default=(0, 3, 6, 9), min_length=1, description="Celery's priority_steps")
    enqueued_at_header: str = Field(
        default="enqueued_at", min_length=1, description="header with the time of enqueueing: seconds, or ISO 8601"
    )
    read_at_most: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="messages of a list, or ten times as many unacknowledged, to look into",
    )


class RqLayout(Settings):
    """RQ's lists and registries."""

    queues: tuple[str, ...] = Field(default=(), description="names of queues; empty: those that RQ has registered")
    read_at_most: int = Field(default=100, ge=1, le=10_000, description="jobs at work whose times are read")


class SidekiqLayout(Settings):
    """Sidekiq's lists, its shared sets, and what its processes report; versions 6 to 8."""

    queues: tuple[str, ...] = Field(default=(), description="names of queues; empty: those that Sidekiq has registered")
    namespace: str = Field(default="", description="what redis-namespace puts before each key, without the colon")
    tenant: DocumentTenant = Field(default=(), description="json begins at the job: args[0].tenant, tenant_id")
    read_at_most: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="waiting jobs of a queue that are looked into for tenants; ten times as many of schedule and retry",
    )


class BullmqLayout(Settings):
    """BullMQ's lists, sorted sets and hashes of jobs; versions 4 to 6."""

    queues: tuple[str, ...] = Field(default=(), description="names of queues; empty: those whose meta hash is found")
    prefix: str = Field(default="bull", min_length=1, description="BullMQ's prefix of all keys")
    tenant: Annotated[TenantRules, only("json", "key", "queue")] = Field(
        default=(), description="json begins at the job's data; key is the job's id"
    )
    read_at_most: int = Field(
        default=100, ge=1, le=10_000, description="jobs of a queue: where it holds no more, each is looked into"
    )
    jobs_per_cycle: int = Field(
        default=2_000, ge=0, le=100_000, description="jobs of all queues together that a cycle looks into"
    )


class DramatiqLayout(Settings):
    """Dramatiq's lists and hashes of messages."""

    queues: tuple[str, ...] = Field(default=(), description="names of queues; empty: those of which messages are seen")
    namespace: str = Field(default="dramatiq", min_length=1, description="the RedisBroker's namespace")
    tenant: DocumentTenant = Field(default=(), description="json begins at the message: kwargs.tenant, options.tenant")
    read_at_most: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="messages of a list that are looked into; ten times as many delayed ones",
    )
    forget_after: float = Field(
        default=3600,
        gt=0,
        description="seconds for which a queue without messages is an empty queue, not a deleted one",
    )


class ResqueLayout(Settings):
    """Resque's lists, and what its workers are at."""

    queues: tuple[str, ...] = Field(default=(), description="names of queues; empty: those that Resque has registered")
    namespace: str = Field(default="resque", description="Resque.redis.namespace, without the colon")
    tenant: DocumentTenant = Field(default=(), description="json begins at the job: args[0].tenant")
    read_at_most: int = Field(
        default=100, ge=1, le=10_000, description="jobs of a queue to look into for tenants; ten times as many workers"
    )


class SentinelSettings(Settings):
    """The Sentinels that know which server is the primary now; TLS is the broker's."""

    service: str = Field(min_length=1, description="the primary's name at the Sentinels")
    addresses: tuple[str, ...] = Field(min_length=1, description="host:port of each Sentinel")
    user: str | None = None
    password: Secret | None = Field(default=None, description="the Sentinels' own, where they ask for one")

    @field_validator("addresses")
    @classmethod
    def _hosts(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            if not urlsplit(without_secrets(f"//{address}")).hostname:
                raise ValueError("a Sentinel is host:port")
        return addresses

    def hosts(self) -> list[tuple[str, int]]:
        """Where they listen."""
        parts = [urlsplit(f"//{address}") for address in self.addresses]
        return [(part.hostname or "", part.port or 26379) for part in parts]


class RedisBroker(RedisServer, NetworkBroker):
    """One Redis or Valkey server, what Sentinels name, or a cluster. Where no layout is given, all are searched for."""

    kind: Literal["redis"] = "redis"
    discover_every: float = Field(default=2.0, ge=0, description="seconds from one search for new queues to the next")
    scan_budget: int = Field(
        default=20_000, ge=100, description="keys that a cycle's search may look at; a longer one goes on in the next"
    )
    sentinel: SentinelSettings | None = Field(
        default=None, description="asks Sentinels for the primary; of url the database alone counts"
    )
    read_replica: bool = Field(
        default=False, description="read a replica, as old as its replication; else one is no place to read queues at"
    )
    dyno: DynoLayout | None = None
    streams: StreamLayout | None = None
    celery: CeleryLayout | None = None
    rq: RqLayout | None = None
    sidekiq: SidekiqLayout | None = None
    bullmq: BullmqLayout | None = None
    dramatiq: DramatiqLayout | None = None
    resque: ResqueLayout | None = None

    def addresses(self) -> list[tuple[str, int]]:
        """Where ``url`` points, or the Sentinels."""
        return self.sentinel.hosts() if self.sentinel is not None else super().addresses()

    def layouts(self) -> dict[str, Settings]:
        """Name → settings of each layout that is configured; of every one, by its defaults, where none is."""
        given = {name: layout for name in LAYOUTS if (layout := getattr(self, name)) is not None}
        return given or {name: layout() for name, layout in LAYOUTS.items()}

    def systems(self) -> frozenset[str]:
        """Redis, and the frameworks whose queues are searched for there."""
        return frozenset({"redis", *self.layouts()} - {"dyno", "streams"})


#: The layouts by the name of their setting; :mod:`collectors.redis.layouts` has the code of each.
LAYOUTS: dict[str, type[Settings]] = {
    "dyno": DynoLayout,
    "streams": StreamLayout,
    "celery": CeleryLayout,
    "rq": RqLayout,
    "sidekiq": SidekiqLayout,
    "bullmq": BullmqLayout,
    "dramatiq": DramatiqLayout,
    "resque": ResqueLayout,
}
