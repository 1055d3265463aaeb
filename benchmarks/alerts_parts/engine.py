"""An alert engine over views that a benchmark makes, with the store and the process for SQL that it has in service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from alerts.aside import rule_worker
from alerts.engine import Engine
from alerts.evaluate import Freshness
from alerts.rules.expression import ENGINE_VIEWS, schema_of
from alerts.rules.model import Rule
from alerts.settings import AlertSettings
from alerts.store import States, connect
from alerts.store.translate import translate
from alerts.views_cache import ViewCache
from lake.clock import ZERO, Clock
from lake.definitions import Definitions

VIEW = "queue_health_now"


class Probe:
    """Data that are always fresh."""

    def read(self, _: object, now: datetime, ahead: timedelta = ZERO, **__: object) -> tuple[Freshness, pa.Table]:
        """As :meth:`alerts.freshness.FreshnessProbe.read`."""
        return Freshness(now, now, False, reached=now), ENGINE_VIEWS["data_freshness"].empty_table()


def view(rows: int, depths: Sequence[int] | pa.Array) -> pa.Table:
    """So many queues, each with its depth; what else the view holds is null."""
    columns = {
        "broker": pa.array(["nats"] * rows),
        "queue": pa.array([f"queue-{row}" for row in range(rows)]),
        "depth": pa.array(depths, pa.int64()),
    }
    schema = schema_of(VIEW)
    return pa.table(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in schema], schema=schema
    )  # one object: the worker keeps what it has


def engine(
    store: Path,
    rules: Sequence[Rule],
    settings: AlertSettings,
    query: Callable[[str], pa.Table],
    clock: Clock,
    wake: Callable[[], None] = lambda: None,
) -> Engine:
    """The engine, with what ``store`` remembers."""
    database = connect(store)
    translate(database, clock.now(), clock.epoch)
    views = ViewCache(query, rule_worker(), query)
    return Engine(
        rules,
        settings,
        States(database),
        Probe(),  # type: ignore[arg-type]
        query,
        views,
        Definitions,
        wake,
        "http://sojourn.example",
    )


@contextmanager
def receiver(*arguments: str) -> Iterator[int]:
    """A receiver of :mod:`benchmarks.alerts_parts.receiver` in a process of its own; its port."""
    command = [sys.executable, str(Path(__file__).with_name("receiver.py")), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
