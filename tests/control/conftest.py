"""A controller over views that a test sets row by row, queried by a real SQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from alerts.api import access_controlled, url_of
from alerts.control import Control, build
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.models import AlertInstance, AlertState, RuleEvaluation, fingerprint
from alerts.settings import AlertSettings
from lake.clock import Clock
from lake.reader import to_duckdb
from lake.schema import TIMESTAMP
from lake.store import Lake
from lake.tables import PARTIALS
from lake.web.server import WebServer, listen, served

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)

_TENANTS = pa.schema(
    [
        ("as_of", TIMESTAMP),
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("subscriber", pa.string()),
        ("tenant", pa.string()),
        ("backlog", pa.int64()),
        ("reconciled_backlog", pa.int64()),
        ("ready", pa.int64()),
        ("coverage", pa.float64()),
        ("oldest_age_seconds", pa.float64()),
        ("arrival_rate", pa.float64()),
        ("completion_rate", pa.float64()),
        ("noisy", pa.bool_()),
    ]
)
_HEALTH = pa.schema(
    [
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("subscriber", pa.string()),
        ("depth", pa.int64()),
        ("coverage", pa.float64()),
        ("staleness_seconds", pa.float64()),
        ("mode", pa.string()),
        ("consumers", pa.int64()),
        ("prefetch", pa.int64()),
    ]
)
_WORK = pa.schema(
    [
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("subscriber", pa.string()),
        ("tenant", pa.string()),
        ("start_rate", pa.float64()),
        ("mean_processing_seconds", pa.float64()),
        ("concurrency_limit", pa.int64()),
        ("in_flight", pa.int64()),
    ]
)
_SAMPLES = pa.schema(
    [
        ("sampled_at", TIMESTAMP),
        ("broker", pa.string()),
        ("queue", pa.string()),
        ("publish_latency_seconds", pa.float64()),
        ("state", pa.string()),
        ("publishes", pa.int64()),
        ("publish_errors", pa.int64()),
    ]
)
_PARTIAL_COLUMNS = (
    *("broker", "queue", "subscriber", "tenant", "bucket_start", "newest_occurred_at"),
    *("enqueued", "completed", "failed", "dead_lettered", "expired", "sidelined", "processing_sum"),
    "first_attempt_age_max",
)
_PARTIALS = pa.schema([PARTIALS.schema.field(name) for name in _PARTIAL_COLUMNS])


@cache
def database() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": "1"})
    db.execute("SET TimeZone = 'UTC'")
    db.execute("CREATE MACRO timestamp_micros(micros) AS make_timestamptz(micros)")
    return db


@dataclass
class World:
    """A queue `orders` on broker `nats` with tenants t0 … t7, of which t0 turns noisy."""

    now: datetime = START
    noisy_rate: int = 120
    quiet_age: float = 12.0
    backlog: int = 520
    mode: str = "backlogged"
    coverage: float | None = 0.97
    finished: int = 10  # of each tenant, a second
    failed: int = 0  # attempts of the noisy one, a second
    probe: str | None = None  # what the broker's own state is, as the probe of it told; None: there is no probe
    publish_seconds: float | None = 0.01  # the probe's median
    probed_ago: float = 0.0
    staleness: float = 0.5
    consumers: int | None = 8
    service_seconds: float | None = 0.1
    in_hand_limit: int | None = None  # of each tenant's consumer
    in_work: int | None = 0
    prefetch: int | None = None  # of the queue's consumers
    usual_rate: float = 10.0  # of the others, over the window
    work: dict[str, float] | None = None  # seconds for a message, by tenant; 0.1 of those not named
    lag: timedelta = timedelta(seconds=0.4)
    further: timedelta = timedelta(0)  # counts are so much further than what waits
    more: dict[str, int] = field(default_factory=dict)  # further tenants, and what each sends a second
    queries: int = 0
    fails: Exception | None = None

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def calm(self, noisy_rate: int = 10) -> None:
        self.noisy_rate, self.quiet_age, self.backlog, self.mode = noisy_rate, 0.2, 4, "fast"

    def query(self, sql: str) -> pa.Table:
        self.queries += 1
        if self.fails is not None:
            raise self.fails
        as_of = self.now - self.lag
        as_of = as_of.replace(microsecond=as_of.microsecond // 100_000 * 100_000)  # parts of a second in whole messages
        tenants = [
            {
                "as_of": as_of, "broker": "nats", "queue": "orders", "subscriber": None, "tenant": f"t{i}",
                "backlog": self.backlog if i == 0 else 2, "ready": self.backlog if i == 0 else 1,
                "reconciled_backlog": self.backlog if i == 0 else 2, "coverage": self.coverage,
                "oldest_age_seconds": 40.0 if i == 0 else self.quiet_age,
                "arrival_rate": 60.0 if i == 0 else self.usual_rate, "completion_rate": 10.0, "noisy": i == 0,
            }
            for i in range(8)
        ]  # fmt: skip
        health = [
            {
                "broker": "nats", "queue": "orders", "subscriber": None, "depth": self.backlog, "mode": self.mode,
                "coverage": self.coverage, "staleness_seconds": self.staleness, "consumers": self.consumers,
                "prefetch": self.prefetch,
            }
        ]  # fmt: skip
        work = [
            {
                "broker": "nats", "queue": "orders", "subscriber": None, "tenant": f"t{i}", "start_rate": 10.0,
                "mean_processing_seconds": self.service_seconds, "concurrency_limit": self.in_hand_limit,
                "in_flight": self.in_work,
            }
            for i in range(8)
        ]  # fmt: skip
        counted = as_of + self.further
        second = counted.replace(microsecond=0)
        parts = [counted.microsecond / 1e6] + [1.0] * 11  # of each second, the newest first
        partials = [
            {
                "broker": "nats", "queue": "orders", "subscriber": "", "tenant": f"t{i}",
                "bucket_start": second - timedelta(seconds=back),
                "newest_occurred_at": second + timedelta(seconds=part - back), "completed": round(self.finished * part),
                "enqueued": round((self.noisy_rate if i == 0 else 10) * part),
                "failed": round(self.failed * part) if i == 0 else 0,
                "dead_lettered": 0, "expired": 0, "sidelined": 0,
                "processing_sum": None if self.work is None else self.work.get(f"t{i}", 0.1) * self.finished * part,
            }
            for back, part in enumerate(parts)
            for i in range(8)
        ] + [
            {
                "broker": "nats", "queue": "orders", "subscriber": "", "tenant": name,
                "bucket_start": second - timedelta(seconds=back),
                "newest_occurred_at": counted - timedelta(seconds=back), "enqueued": rate, "completed": 0, "failed": 0,
                "dead_lettered": 0, "expired": 0, "sidelined": 0, "processing_sum": None,
            }
            for back in range(2)
            for name, rate in self.more.items()
        ]  # fmt: skip
        db = database()
        db.register("tenant_backlog_now", pa.Table.from_pylist(tenants, schema=_TENANTS))
        db.register("queue_health_now", pa.Table.from_pylist(health, schema=_HEALTH))
        db.register("concurrency_now", pa.Table.from_pylist(work, schema=_WORK))
        samples = [
            {
                "sampled_at": self.now - timedelta(seconds=self.probed_ago + back), "broker": "nats",
                "queue": "sojourn.probe", "publish_latency_seconds": self.publish_seconds, "state": self.probe,
            }
            for back in range(10)
        ]  # fmt: skip
        db.register("queue_samples", pa.Table.from_pylist(samples if self.probe else [], schema=_SAMPLES))
        db.register("partials", pa.Table.from_pylist(partials, schema=_PARTIALS))
        return db.sql(to_duckdb(sql)).to_arrow_table()

    def evaluation(self, *tenants: str, rule: str = "NoisyTenant", **changes: Any) -> RuleEvaluation:
        alerts = tuple(self.alert({"broker": "nats", "queue": "orders", "tenant": tenant}, rule) for tenant in tenants)
        defaults: dict[str, Any] = {
            "rule": rule, "group": "tenants", "actions": ("fair-share",), "evaluated_at": self.now,
            "data_as_of": self.now - self.lag, "ok": True, "stale": False, "error": None, "alerts": alerts,
        }  # fmt: skip
        return RuleEvaluation(**defaults | changes)

    def alert(self, labels: dict[str, str], rule: str = "NoisyTenant") -> AlertInstance:
        labels = {"alertname": rule} | labels
        return AlertInstance(
            rule, "tenants", labels, {}, 0.7, AlertState.FIRING, self.now, self.now, fingerprint(labels)
        )


@dataclass
class Loop:
    """A controller in its world; ``run`` steps it once a second."""

    world: World
    control: Control
    lake: Lake
    trace: list[float | None] = field(default_factory=list)

    def step(self, *tenants: str, **changes: Any) -> None:
        self.control.controller.step(self.world.now, [self.world.evaluation(*tenants, **changes)], self.world.query)

    def throttle(self, *tenants: str, **changes: Any) -> None:
        """The two looks that a first limit needs."""
        self.step(*tenants, **changes)
        self.world.advance(1)
        self.step(*tenants, **changes)

    def run(self, seconds: int, *tenants: str) -> None:
        for _ in range(seconds):
            self.world.advance(1)
            self.step(*tenants)
            self.trace.append(self.served().get("t0"))

    def served(self) -> dict[str, float]:
        limits = self.control.board.snapshot.limits
        return {limit.tenant: limit.rate for limit in limits if limit.valid_until > self.world.now}

    def journal(self) -> list[dict[str, Any]]:
        rows = self.lake.read("actions").to_pylist()
        return sorted(rows, key=lambda row: row["at"])  # stable: rows of one instant stay in order

    def decisions(self) -> list[str]:
        return [row["decision"] for row in self.journal()]


POLICY: dict[str, Any] = {
    "name": "fair-share", "dry_run": False, "cooldown_seconds": 5, "lease_seconds": 15, "target_seconds": 10,
    "effect_seconds": 6, "max_step": 1.0,
}  # fmt: skip


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def start(world: World, tmp_path: Path) -> Iterator[Callable[..., Loop]]:
    """Starts a controller; twice in one test is a restart over the same state and lake."""
    controls: list[Control] = []

    def make(*, max_waiters: int = 1000, token: str | None = None, actuators: Any = (), **changes: Any) -> Loop:
        spillovers, groups = changes.pop("spillovers", ()), changes.pop("groups", ())
        wanted = {name: value for name, value in (POLICY | changes).items() if value is not None}
        settings = ControlSettings(
            policies=(PolicySettings(**wanted),),
            max_waiters=max_waiters,
            actuators=tuple(actuators),
            spillovers=tuple(spillovers),
            groups=tuple(groups),
        )
        clock = Clock(lambda: world.now, lambda: world.now.timestamp())
        control = build(settings, tmp_path / "lake", tmp_path / "state", token=token, clock=clock)
        controls.append(control)
        return Loop(world, control, Lake(tmp_path / "lake"))

    yield make
    for control in controls:
        control.close()


@pytest.fixture
def serve() -> Callable[..., Any]:
    """Serves a control part's API as the alert process does, on a free port; the context's value is its address."""
    return serving


@contextmanager
def serving(control: Control) -> Iterator[str]:
    settings = AlertSettings()
    front = access_controlled(control.app, settings, control.token, control.token)
    listener = listen(settings.host, 0)
    with served(WebServer(front, listener, front.limits)):
        yield url_of(listener)
