"""A tenant of the lab is noisy exactly where the view says so, as DuckDB evaluates the view's own SQL."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from alerts.rules.loader import load_rules
from alerts.state import Row, step
from lab.loop import FIRES_AFTER, GONE_AFTER, Watch
from lab.noisy import noisy_ones, shares
from lab.queue import Account
from lake.definitions import Definitions
from lake.views import VIEWS, render

SEED, HISTORIES, INSTANTS = 5, 200, 12
START = 1_780_000_000
#: Where the definition turns: 30 in flight, a share of the threshold, 300 s without arrivals.
PAUSES = (1, 1, 2, 5, 60, 299, 300, 301)
IN_FLIGHT = (0, 0, 1, 29, 30, 31, 60, 300)
READY = (0, 0, 0, 1, 5, 400)
WORK = (0.0, 0.0, 0.1, 1.0, 2.0, 60.0)


def accounts_at(rng: random.Random, before: dict[str, Account], second: int, pause: int) -> dict[str, Account]:
    """The tenants a while later: some idle, some with all they have in flight, some that sent something meanwhile."""
    accounts = {}
    for name, earlier in before.items():
        account = Account(ready=rng.choice(READY), in_flight=rng.choice(IN_FLIGHT), last_arrival=earlier.last_arrival)
        if rng.random() < 0.4:
            account.last_arrival = second - rng.choice((0, pause - 1)) + rng.choice((0.0, 0.5))
        account.backlog = dict.fromkeys(range(account.ready + account.in_flight + rng.choice((0, 0, 3))), 0.0)
        accounts[name] = account
    return accounts


@pytest.fixture(scope="module")
def histories() -> tuple[list[dict[str, Any]], dict[tuple[str, str, int], bool]]:
    """Rows of ``stage_shares``, one queue a history, and who is noisy by the lab, by (queue, tenant, second)."""
    rng = random.Random(SEED)
    rows, noisy = [], {}
    for number in range(HISTORIES):
        queue, second = f"q{number}", START
        accounts = {f"t{tenant}": Account() for tenant in range(rng.choice((1, 2, 3, 4, 8)))}
        found = dict.fromkeys(accounts, False)
        for _ in range(INSTANTS):
            pause = rng.choice(PAUSES)
            second += pause
            accounts = accounts_at(rng, accounts, second, pause)
            worked = {name: rng.choice(WORK) for name in accounts}
            found = noisy_ones(found, accounts, worked, float(second))
            told = shares(accounts, worked, float(second))
            columns = {column: np.broadcast_to(values, len(accounts)).tolist() for column, values in told.items()}
            for place, (name, account) in enumerate(accounts.items()):
                row = {column: values[place] for column, values in columns.items()}
                row["last_arrival_second"] = int(account.last_arrival) if math.isfinite(account.last_arrival) else None
                rows.append({"broker": "lab", "queue": queue, "subscriber": "", "tenant": name} | row)
                noisy[queue, name, second] = found[name]
    return rows, noisy


def test_the_lab_calls_noisy_whom_the_view_calls_noisy(
    histories: tuple[list[dict[str, Any]], dict[tuple[str, str, int], bool]],
) -> None:
    rows, noisy = histories
    database = duckdb.connect()
    database.register("stage_shares", pa.table({name: [row[name] for row in rows] for name in rows[0]}))
    sql = sqlglot.transpile(render(VIEWS["stage_noisy"], Definitions()), read="spark", write="duckdb")[0]
    told = database.execute(f"SELECT queue, tenant, at_second, noisy FROM ({sql})").fetchall()
    viewed = {(queue, tenant, second): verdict for queue, tenant, second, verdict in told}
    assert viewed == noisy, SEED
    assert 0.05 < sum(noisy.values()) / len(noisy) < 0.95


SHIPPED = next(rule for rule in load_rules([], builtin=True) if rule.name == "NoisyTenant")


def test_the_labs_alert_waits_as_long_as_the_shipped_rule() -> None:
    assert SHIPPED.hold == timedelta(seconds=FIRES_AFTER)
    assert SHIPPED.keep_firing_for == timedelta(seconds=GONE_AFTER)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 15)), max_size=30))
def test_an_alert_of_the_lab_fires_exactly_when_the_shipped_one_would(spans: list[tuple[bool, int]]) -> None:
    watch, alerts, now = Watch(), {}, datetime(2026, 1, 1, tzinfo=UTC)
    row = Row({"tenant": "a"}, "a", 0.9)
    for noisy, seconds in spans:
        for _ in range(seconds):
            now += timedelta(seconds=1)
            watch.judge(noisy)
            alerts, _ = step(alerts, [row] if noisy else [], SHIPPED, now)
            firing = [one for one in alerts.values() if one.alert.state.is_firing]
            assert watch.firing == bool(firing)
