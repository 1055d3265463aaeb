"""The engine with its store and its sender, to be killed: forked, fed from a file, without anything that starts slowly.

``python -m tests.alerts.under_fire FOLDER`` reads lines: ``start`` forks a process that runs the engine over what
``world.json`` says, ``kill`` ends the oldest by SIGKILL. Each is answered by a line. Retries come within milliseconds.
Where the file ``store`` names a PostgreSQL, several may run, of which one evaluates.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from alerts.engine import Engine
from alerts.evaluate import Freshness
from alerts.notify import breaker, retry
from alerts.notify.sender import Sender
from alerts.rules.expression import ENGINE_VIEWS
from alerts.rules.model import Rule
from alerts.settings import AlertSettings
from alerts.store import States, connect
from alerts.store.database import Store
from alerts.store.postgres import Postgres
from alerts.store.translate import translate
from alerts.views_cache import ViewCache
from lake.clock import ZERO, Clock
from lake.definitions import Definitions
from lake.errors import UserError

VIEW = "queue_health_now"
_EXPR = f"SELECT broker, queue, depth AS value FROM {VIEW} WHERE mode = '{{mode}}'"
#: So that take-overs cost a test little; whoever is slower than that loses its turn, and no page.
LEASE_SECONDS = 0.5
SHORT = timedelta(milliseconds=30)
RULES = [
    Rule("g", "AtOnce", _EXPR.format(mode="once"), tables=frozenset({VIEW})),
    Rule("g", "Held", _EXPR.format(mode="held"), hold=SHORT, tables=frozenset({VIEW})),
    Rule("g", "Kept", _EXPR.format(mode="kept"), keep_firing_for=SHORT, tables=frozenset({VIEW})),
]
_SCHEMA = pa.schema([("broker", pa.string()), ("queue", pa.string()), ("depth", pa.int64()), ("mode", pa.string())])


class World:
    """What the file says now: which queues are in which mode, whether the query fails or data are stale, the wall."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.said: dict[str, Any] = {}

    def read(self) -> None:
        """Look into the file, which is replaced as a whole."""
        self.said = json.loads(self._path.read_text())

    def wall(self) -> datetime:
        """The wall clock, which somebody sets."""
        self.read()
        return datetime.now(UTC) + timedelta(seconds=self.said["ahead"])

    def rows(self, _: str) -> pa.Table:
        """The view; sometimes it cannot be read."""
        if self.said["failing"]:
            raise UserError("the query failed", "wait")
        return pa.Table.from_pylist(self.said["rows"], schema=_SCHEMA)


class _Probe:
    """The freshness of a world without a lake."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, _: object, now: datetime, ahead: timedelta = ZERO, **__: object) -> tuple[Freshness, pa.Table]:
        stale = bool(self._world.said["stale"])
        return Freshness(now, now, stale, reached=now), ENGINE_VIEWS["data_freshness"].empty_table()


class _InProcess:
    """SQL where it is asked: a process for it would outlive the one that is killed."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config={"threads": "1"})

    def query_over(self, tables: Mapping[str, pa.Table], sql: str) -> pa.Table:
        for name, table in tables.items():
            self._database.register(name, table)
        return self._database.sql(sql).to_arrow_table()


def _soon(attempts: int, jitter: float, *_: timedelta) -> timedelta:
    return timedelta(milliseconds=20 + 20 * jitter) * min(attempts, 3)


def run(folder: Path) -> None:
    """The alert process, for ever."""
    retry.backoff = breaker.backoff = _soon
    if not (folder / "store").exists():
        _evaluate(folder, folder / "alerts.sqlite")
        return
    server = Postgres((folder / "store").read_text(), seconds=LEASE_SECONDS)
    server.in_turn(lambda: _evaluate(folder, server), threading.Event())


def _evaluate(folder: Path, store: Store) -> None:
    settings = AlertSettings.model_validate_json((folder / "settings.json").read_text())
    world = World(folder / "world.json")
    world.read()
    clock = Clock(world.wall)
    database = connect(store)
    translate(database, clock.now(), clock.epoch)
    sender = Sender(store, settings.receivers, clock)
    views = ViewCache(world.rows, _InProcess(), world.rows)  # type: ignore[arg-type]
    engine = Engine(
        RULES,
        settings,
        States(database),
        _Probe(world),  # type: ignore[arg-type]
        world.rows,
        views,
        Definitions,
        sender.wake,
        "http://sojourn",
    )
    sender.start()
    try:
        while sender.alive:
            world.read()
            engine.round(clock.now(), new_data=True, everything=True, ahead=clock.ahead)
            time.sleep(0.003)
    finally:
        sender.stop()


def main(folder: Path) -> None:
    """Fork and kill as told; nothing is started here that a fork would lose."""
    children: list[int] = []
    for line in sys.stdin:
        if line.strip() == "kill":
            _end(children.pop(0))
        else:
            children.append(os.fork())
            if children[-1] == 0:
                os.close(0)
                try:
                    run(folder)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
        print("done", flush=True)
    for child in children:
        _end(child)


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
