"""Whatever ends the engine, whoever does not answer, however clocks are set: every page is told, none by mistake."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lake.files import write_atomically
from tests.alerts.helpers import WebhookReceiver
from tests.alerts.under_fire import RULES
from tests.support.deep import examples
from tests.support.waiting import PATIENCE, wait_until

MODES = {"once": "AtOnce", "held": "Held", "kept": "Kept"}
QUEUES = [f"{mode}-{number}" for mode in MODES for number in range(3)]
#: What receivers that fail answer, in turn; 0: they hold the answer back until the engine gives up.
FAILURES = [500, 429, 503, 0]
Receivers = Callable[..., WebhookReceiver]
#: Told: receiver, queue, status → how many notifications, each counted once by its id.
Pages = Counter[tuple[str, str, str]]


@dataclass
class Fire:
    """An engine under fire: what it is fed, its store, and who is told."""

    folder: Path
    receivers: dict[str, WebhookReceiver]
    process: subprocess.Popen[str]
    world: dict[str, Any] = field(default_factory=lambda: {"ahead": 0, "stale": False, "failing": False, "rows": []})
    url: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    kills: int = 0
    starts: int = 0

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", "the engine's parent has ended"
        self.starts += line == "start"

    def write(self, **changed: Any) -> None:
        with self.lock:
            self.world |= changed
            write_atomically(self.folder / "world.json", json.dumps(self.world))

    def feed(self, firing: set[str]) -> None:
        rows = [{"broker": "nats", "queue": one, "depth": 1, "mode": one.split("-")[0]} for one in sorted(firing)]
        self.write(rows=rows)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            if self.url is not None:
                with psycopg.connect(self.url) as server:
                    return server.execute(sql.encode()).fetchall()
            with closing(sqlite3.connect(f"file:{self.folder / 'alerts.sqlite'}?mode=ro", uri=True, timeout=30)) as db:
                return db.execute(sql).fetchall()
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return []  # it is not there yet, or its schema is not

    def firing(self) -> set[str]:
        states = self.ask("SELECT labels FROM alerts WHERE state IN ('firing', 'keep_firing') AND resolved_at IS NULL")
        return {json.loads(labels)["queue"] for (labels,) in states}

    def told(self) -> dict[tuple[str, str], str]:
        """What each receiver heard last of each queue."""
        heard = ((name, body) for name, receiver in self.receivers.items() for body in _whole(receiver).values())
        return {(name, body["groupLabels"]["queue"]): body["status"] for name, body in heard}

    def pages(self) -> Pages:
        found: Pages = Counter()
        delivered = {id for (id,) in self.ask("SELECT delivery_id FROM deliveries WHERE outcome = 'delivered'")}
        for name, receiver in self.receivers.items():
            heard = _whole(receiver)
            assert heard.keys() <= delivered, "what was heard was taken, too, in the end"
            found.update((name, body["groupLabels"]["queue"], body["status"]) for body in heard.values())
        return found


def _whole(receiver: WebhookReceiver) -> dict[str, Any]:
    """By id, what arrived to its last byte: whoever is killed while sending leaves less."""
    requests = [one for one in receiver.received if len(one.body) == int(one.headers["content-length"])]
    return {request.id: json.loads(request.body) for request in requests}


@contextmanager
def fire(folder: Path, receivers: Receivers, url: str | None = None) -> Iterator[Fire]:
    """An engine to be killed; with the ``url`` of a PostgreSQL a second one stands by."""
    folder.mkdir()
    if url is not None:
        (folder / "store").write_text(url)
    made = {name: receivers() for name in ("pager", "chat", "desk")}
    settings = {
        "builtin": False,
        "receivers": [
            {"name": name, "url": one.url, "allow_private": True, "timeout": "200ms"} for name, one in made.items()
        ],
        "route": {"group_by": ["alertname", "queue"], "group_interval": "0s"},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [sys.executable, "-W", "ignore", "-m", "tests.alerts.under_fire", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=Path(__file__).parents[2]
        )
        try:
            yield Fire(folder, made, process, url=url)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def script(steps: int, seed: int) -> list[set[str]]:
    """Which queues are bad, step by step; in the end some are."""
    chance, firing, found = random.Random(seed), set[str](), []
    for _ in range(steps):
        firing = firing ^ {*chance.sample(QUEUES, chance.randint(1, 4))}
        found.append(firing)
    return found


def undergo(fire: Fire, steps: list[set[str]], kills: int, seed: int) -> None:
    """Go through ``steps``, each until the engine has written it down, and kill it ``kills`` times meanwhile."""
    chance, done = random.Random(seed), threading.Event()

    def shoot() -> None:
        while fire.kills < kills:
            done.wait(chance.uniform(0.0, 0.25))
            fire.tell("kill")
            fire.kills += 1
            if chance.random() < 0.3:  # nobody runs for a while, and the clock is set
                fire.write(ahead=chance.choice((-3600, 0, 3600)))
                time.sleep(0.05)
            fire.tell("start")

    fire.feed(set())
    for _ in range(1 if fire.url is None else 2):
        fire.tell("start")
    shooter = threading.Thread(target=shoot, daemon=True)
    shooter.start()
    number = 0
    while number < len(steps) or shooter.is_alive():
        wanted = steps[number] if number < len(steps) else steps[-1]
        if kills:
            _trouble(fire, number, chance)
        fire.feed(wanted)
        wait_until(lambda wanted=wanted: fire.firing() == wanted, f"step {number} to be written down")
        number += 1
        if number >= len(steps) and shooter.is_alive():
            time.sleep(0.02)
    done.set()
    shooter.join(PATIENCE * 60)
    fire.write(failing=False, stale=False, ahead=0)
    for receiver in fire.receivers.values():
        receiver.script.clear()
        receiver.hold = 0.0
    wait_until(lambda: fire.ask("SELECT COUNT(*) FROM outbox") == [(0,)], "everything to be delivered")
    wait_until(lambda: fire.firing() == steps[-1], "the last step to stand")


def _trouble(fire: Fire, number: int, chance: random.Random) -> None:
    """Receivers fail in turn; now and then a query fails, or data are stale, for a moment, and the clock is set."""
    for place, receiver in enumerate(fire.receivers.values()):
        status = FAILURES[number % len(FAILURES)] if number % len(fire.receivers) == place else 200
        receiver.hold = 0.3 if status == 0 else 0.0
        receiver.script[:] = [(status, {})] * chance.randint(1, 6) if status >= 400 else []
    bad = chance.choice(("failing", "stale", "", "", ""))
    if bad:
        fire.write(**{bad: True})
        time.sleep(chance.uniform(0.0, 0.05))
        fire.write(**{bad: False})
    if chance.random() < 0.2:
        fire.write(ahead=chance.choice((-3600, 0, 3600)))


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    most = 200 if request.config.getoption("--deep") else 8
    return int(request.config.getoption("--kills") or most)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"][: examples(1, 2)])
def test_kills_at_random_instants_lose_double_and_resolve_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, receivers: Receivers, kills: int, kind: str
) -> None:
    url = request.getfixturevalue("schema") if kind == "postgresql" else None
    assert {rule.name for rule in RULES} == {*MODES.values()}
    steps = script(max(12, kills), seed=13)
    with fire(tmp_path / "shot", receivers, url) as shot:
        undergo(shot, steps, kills, seed=kills)
        assert shot.kills == kills
        expected: Pages = Counter()
        before: set[str] = set()
        for firing in steps:
            for name in shot.receivers:
                expected.update((name, queue, "firing") for queue in firing - before)
                expected.update((name, queue, "resolved") for queue in before - firing)
            before = firing
        assert shot.pages() == expected, "each page once by its id: none lost, none by accident"
        state = "SELECT rule_group, rule, fingerprint, labels, state FROM alerts WHERE resolved_at IS NULL ORDER BY 3"
        told = "SELECT receiver, group_key, firing FROM notified WHERE firing <> '[]' ORDER BY 1, 2"
        moves = (
            "SELECT fingerprint, from_state, to_state, COUNT(*) FROM transitions"
            " WHERE 'pending' NOT IN (from_state, to_state) AND 'keep_firing' NOT IN (from_state, to_state)"
            " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        after = shot.ask(state), shot.ask(told), shot.ask(moves), shot.told()
    with fire(tmp_path / "calm", receivers) as calm:
        undergo(calm, steps, 0, seed=0)
        assert calm.pages() == expected
        assert (calm.ask(state), calm.ask(told), calm.ask(moves), calm.told()) == after
