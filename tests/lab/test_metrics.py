"""What the lab answers to the control's statements is what their SQL says of the same rows, as DuckDB evaluates it."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from alerts.control.active_limit import Target
from alerts.control.entitler import look
from alerts.control.observe import observe
from alerts.control.spans import BRIEF_SECONDS, RECENT_RANGE
from alerts.laws.entitled_queue import Look
from alerts.laws.observation import Observation
from lab.loop import Loop
from lab.metrics import BROKER, QUEUE, SUBSCRIBER, Metrics, instant, told_age
from lab.queue import Queue
from lab.scenario import Failing, Phase, Scenario, load
from lake.errors import SojournError

RECENT = RECENT_RANGE[1]


class Lake:
    """The tables and views that the statements read, as the simulated queue would have filled them."""

    def __init__(self, queue: Queue, noisy: set[str], window: int) -> None:
        self._database = duckdb.connect()
        self._database.execute("CREATE MACRO timestamp_micros(micros) AS to_timestamp(micros / 1000000)")
        now = queue.now
        where = {"broker": BROKER, "queue": QUEUE, "subscriber": SUBSCRIBER}
        seconds = range(int(now) - window, int(now))
        kept = range(max(0, int(now) - 60), int(now) + 1)
        backlog: list[dict[str, Any]] = []
        partials: list[dict[str, Any]] = []
        for name, account in queue.accounts.items():
            rates = [sum(of.get(at, 0) for at in seconds) / window for of in (account.arrivals, account.completions)]
            backlog.append(
                where
                | {
                    "tenant": name,
                    "as_of": instant(now),
                    "backlog": account.backlog,
                    "ready": account.ready,
                    "arrival_rate": rates[0],
                    "completion_rate": rates[1],
                    "noisy": name in noisy,
                    "oldest_age_seconds": told_age(account.oldest, now),
                }
            )
            partials += [
                where
                | {
                    "tenant": name,
                    "bucket_start": instant(at),
                    "enqueued": account.arrivals.get(at, 0),
                    "completed": account.completions.get(at, 0),
                    "failed": account.failures.get(at, 0),
                    "dead_lettered": 0,
                    "expired": 0,
                    "sidelined": 0,
                    "processing_sum": account.processing.get(at, 0.0),
                    "newest_occurred_at": instant(min(at + 1, now)),
                    "first_attempt_age_max": max(
                        (one.began_at - one.enqueued_at for one in account.begun if at <= one.began_at < at + 1),
                        default=None,
                    ),
                }
                for at in kept
            ]
        oldest = max(row["oldest_age_seconds"] for row in backlog)
        health = where | {
            "depth": sum(row["ready"] for row in backlog),
            "coverage": 1.0,
            "staleness_seconds": 0.0,
            "mode": "backlogged" if oldest > 2 else "fast",
        }
        tables = {"tenant_backlog_now": backlog, "partials": partials, "queue_health_now": [health]}
        for name, rows in tables.items():
            self._database.register(name, pa.Table.from_pylist(rows))

    def query(self, sql: str) -> pa.Table:
        """The rows of a SELECT in Spark's dialect."""
        return self._database.execute(sqlglot.transpile(sql, read="spark", write="duckdb")[0]).to_arrow_table()


@pytest.fixture(scope="module")
def queue() -> Queue:
    """A flood, before it begins."""
    return Queue(flood(), 12, 3)


def flood() -> Scenario:
    scenario = load("noisy-neighbour")
    tenants = tuple(
        replace(tenant, phases=(Phase(0, 10), Phase(10, 120), Phase(40, 10))) if tenant.suspect else tenant
        for tenant in scenario.tenants
    )
    return replace(scenario, duration=60, window_seconds=10, tenants=tenants, failing=Failing(20, 30, 0.2))


@pytest.mark.parametrize("brief", [0, BRIEF_SECONDS])
@pytest.mark.parametrize("usual", [0, 30])
def test_the_lab_answers_as_the_views_would(usual: int, brief: int) -> None:
    queue = Queue(flood(), 12, 3)
    loop = Loop(queue, flood(), judging=True)
    loop.start()
    place, targets = (BROKER, QUEUE), [Target(BROKER, QUEUE, name) for name in ("noisy", "quiet-0")]
    seen: list[tuple[dict[Target, Observation], ...]] = []
    looks: list[tuple[Look, ...]] = []
    watch = partial(observe, signals={"deliveries": 8.0}, usual_seconds=usual, brief_seconds=brief)

    def note() -> None:
        assert loop.metrics is not None
        metrics, views = loop.metrics, Lake(queue, loop.metrics.noisy, 10).query
        seen.append(tuple(watch(query, targets, instant(queue.now), RECENT) for query in (metrics.answer, views)))
        looks.append(tuple(look(query, [place], instant(queue.now))[place] for query in (metrics.now(), views)))

    for second in (12.0, 25.0, 39.0, 50.0):  # behind what the loop does then
        queue.at(second, lambda second=second: queue.at(second, note))  # type: ignore[misc]
    queue.run()
    assert len(seen) == 4 and all(by_lab.keys() == by_views.keys() == {*targets} for by_lab, by_views in seen)
    assert any(one.quiet_age_seconds > 2 for by_lab, _ in seen for one in by_lab.values())
    assert any(one.failures for by_lab, _ in seen for one in by_lab.values())
    for by_lab, by_views in seen:
        for target in targets:
            pairs = [(by_lab[target], by_views[target])]
            if brief:
                pairs.append(tuple(one.lately for one in pairs[0]))
                assert pairs[1][0].arrival_rate != pairs[0][0].arrival_rate
            for one, other in ((asdict(replace(one, lately=None)) for one in pair) for pair in pairs):
                assert one.pop("rivals") == pytest.approx(other.pop("rivals")) and one == pytest.approx(other), target
    for by_lab, by_views in looks:
        for name in ("waiting", "finished", "arrivals", "work"):
            assert getattr(by_lab, name) == pytest.approx(getattr(by_views, name)), name


def test_what_nobody_is_known_to_ask_is_refused(queue: Queue) -> None:
    metrics = Metrics(queue, flood())
    with pytest.raises(SojournError, match="does not know"):
        metrics.answer("SELECT * FROM message_events")
    with pytest.raises(SojournError, match="does not know"):
        metrics.matching("SELECT tenant FROM tenant_backlog_now")
