"""A tenant of the lab is noisy exactly where the views' formulas say so, as DuckDB evaluates them."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot

from lab.noisy import noisy_ones, shares
from lab.queue import Account
from lake.views.catalogue import complete

SEED, HISTORIES, INSTANTS = 5, 200, 12
START = 1_780_000_000
#: Where the definition turns: 30 in flight, a share of the threshold, 300 s without arrivals.
PAUSES = (1, 1, 2, 5, 60, 299, 300, 301)
IN_FLIGHT = (0, 0, 1, 29, 30, 31, 60, 300)
READY = (0, 0, 0, 1, 5, 400)
WORK = (0.0, 0.0, 0.1, 1.0, 2.0, 60.0)

#: Noisy since the tenant's last entry, unless it has been quiet since; every instant is judged as it was then.
_NOISY = """
WITH entering AS (SELECT *, $enters AS enters FROM (SELECT *, $threshold AS threshold FROM shares) AS told)
SELECT
  *,
  COALESCE(
    MAX(CASE WHEN enters THEN at_second END) OVER so_far
      > COALESCE(MAX(CASE WHEN $turns_quiet THEN at_second END) OVER so_far, -1),
    FALSE
  ) AS noisy
FROM entering
WINDOW so_far AS (PARTITION BY queue, tenant ORDER BY at_second ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
"""


def accounts_at(rng: random.Random, before: dict[str, Account], second: int, pause: int) -> dict[str, Account]:
    """The tenants a while later: some idle, some with all they have in flight, some that sent something meanwhile."""
    accounts = {}
    for name, earlier in before.items():
        ready, in_flight = rng.choice(READY), rng.choice(IN_FLIGHT)
        account = Account(entered=ready + in_flight, in_flight=in_flight, last_arrival=earlier.last_arrival)
        if rng.random() < 0.4:
            account.last_arrival = second - rng.choice((0, pause - 1)) + rng.choice((0.0, 0.5))
        accounts[name] = account
    return accounts


@pytest.fixture(scope="module")
def histories() -> tuple[list[dict[str, Any]], dict[tuple[str, str, int], bool]]:
    """What the formulas ask for, one queue a history, and who is noisy by the lab, by (queue, tenant, second)."""
    rng = random.Random(SEED)
    rows, noisy = [], {}
    for number in range(HISTORIES):
        queue, second = f"q{number}", START
        accounts = {f"t{tenant}": Account() for tenant in range(rng.choice((1, 2, 3, 4, 8)))}
        found = np.zeros(len(accounts), bool)
        for _ in range(INSTANTS):
            pause = rng.choice(PAUSES)
            second += pause
            accounts = accounts_at(rng, accounts, second, pause)
            worked = np.array([rng.choice(WORK) for _ in accounts])
            found = noisy_ones(found, accounts.values(), worked, float(second))
            told = shares(accounts.values(), worked, float(second))
            columns = {column: np.broadcast_to(values, len(accounts)).tolist() for column, values in told.items()}
            for place, (name, account) in enumerate(accounts.items()):
                row = {column: values[place] for column, values in columns.items()}
                row["last_arrival_second"] = int(account.last_arrival) if math.isfinite(account.last_arrival) else None
                rows.append({"broker": "lab", "queue": queue, "subscriber": "", "tenant": name} | row)
                noisy[queue, name, second] = bool(found[place])
    return rows, noisy


def test_the_lab_calls_noisy_whom_the_view_calls_noisy(
    histories: tuple[list[dict[str, Any]], dict[tuple[str, str, int], bool]],
) -> None:
    rows, noisy = histories
    database = duckdb.connect()
    database.register("shares", pa.table({name: [row[name] for row in rows] for name in rows[0]}))
    sql = sqlglot.transpile(complete(_NOISY), read="spark", write="duckdb")[0]
    told = database.execute(f"SELECT queue, tenant, at_second, noisy FROM ({sql})").fetchall()
    viewed = {(queue, tenant, second): verdict for queue, tenant, second, verdict in told}
    assert viewed == noisy, SEED
    assert 0.05 < sum(noisy.values()) / len(noisy) < 0.95
