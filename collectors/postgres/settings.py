"""``kind = "postgres"``: a PostgreSQL database, and which libraries keep their jobs there."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator

from brokers.settings import Settings
from brokers.tenants import TenantRules, only
from collectors.broker import NetworkBroker


class LayoutSettings(Settings):
    """Where one library keeps its jobs."""

    db_schema: str | None = Field(
        default=None, min_length=1, description="the schema of its tables; unset: the library's own default"
    )
    tenant: Annotated[TenantRules, only("column", "json", "header", "queue")] = ()


class PostgresBroker(NetworkBroker):
    """One database. It is read in transactions that are read only, by a user who needs no more than SELECT."""

    default_port: ClassVar[int] = 5432
    kind: Literal["postgres"]
    url: str = Field(description="postgresql://host:port/database")
    others: tuple[str, ...] = Field(default=(), description="host:port of servers to try where that of url is away")
    read_replica: bool = Field(default=False, description="a standby may be read, too; else the primary alone")
    connect_timeout: float = Field(default=5.0, gt=0)
    statement_timeout: float = Field(default=2.0, gt=0, le=60, description="seconds that one statement may take")
    lock_timeout: float = Field(default=0.2, gt=0, le=10, description="seconds that a statement may wait for a lock")
    discover_every: float = Field(default=10.0, gt=0, description="seconds from one look at the tables to the next")
    queues: tuple[str, ...] = Field(default=(), description="names or patterns (*, ?) of queues; empty: all")
    most_queues: int = Field(
        default=1000, ge=1, le=10_000, description="queues told apart, the fullest; the rest is the queue '*'"
    )
    scan_at_most: int = Field(
        default=16, ge=0, description="MiB of a table that may be read whole where none of its indexes serves"
    )
    forget_after: float = Field(
        default=3600, gt=0, description="seconds for which a queue without jobs is an empty queue, not a deleted one"
    )
    river: LayoutSettings | None = None
    pgboss: LayoutSettings | None = None
    graphile: LayoutSettings | None = None
    procrastinate: LayoutSettings | None = None
    pgqueuer: LayoutSettings | None = None
    oban: LayoutSettings | None = None
    pgmq: LayoutSettings | None = None
    solid_queue: LayoutSettings | None = None
    good_job: LayoutSettings | None = None

    @field_validator("url")
    @classmethod
    def _a_database(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres") or not parts.hostname or parts.query:
            raise ValueError("an address is postgresql://host:port/database")
        return url

    def addresses(self) -> list[tuple[str, int]]:
        """The server of ``url`` and the others, in the order in which they are tried."""
        return [self.address, *(_address(other, self.default_port) for other in self.others)]

    def systems(self) -> frozenset[str]:
        """PostgreSQL, and the libraries whose jobs are searched for there."""
        return frozenset({"postgres", "postgresql", *self.chosen()})

    @property
    def database(self) -> str:
        """The name of the database."""
        return unquote(urlsplit(self.url).path.strip("/")) or "postgres"

    def chosen(self) -> dict[str, LayoutSettings]:
        """The libraries that are configured; all of them where none is."""
        every = [name for name, field in type(self).model_fields.items() if field.annotation == LayoutSettings | None]
        given = {name: getattr(self, name) for name in every if self.is_named(name)}
        return given or {name: LayoutSettings() for name in every}

    def is_named(self, layout: str) -> bool:
        """Whether ``layout`` is asked for by name: that its tables are missing is then worth telling."""
        return getattr(self, layout) is not None


def _address(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "", parts.port or port
