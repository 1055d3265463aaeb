from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from dashboard import queries, repository
from dashboard.pace import Pace
from dashboard.questions import recent as recently
from dashboard.repository import Repository
from dashboard.services import series, trends
from dashboard.services.keys import QueueKey
from dashboard.services.series import OTHER, Span
from lake.histogram import bucket_value
from lake.reader import to_duckdb
from lake.select import tables_of
from lake.store import Lake
from lake.views import below
from lake.views.catalogue import NEWEST
from lake.worker.worker import Worker
from tests.dashboard.conftest import STORY_END
from tests.dashboard.scene import NOISY, PROCESSING_SECONDS, WORKERS, alerts_of, write_many_tenants
from tests.dashboard.scene import _append as append_rows
from tests.support.finishing import finish

ORDERS = QueueKey("nats", "orders")
QUARTER = Span.ending(STORY_END, "15 min")


def test_the_noisy_tenant_is_known_with_the_time_it_turned(story: Path, show: Callable[..., None]) -> None:
    show(story)
    (row,) = Repository(story).noisy_tenants()
    assert row["tenant"] == NOISY
    turned = STORY_END - timedelta(seconds=180)
    assert turned <= row["noisy_since"] <= turned + timedelta(seconds=30)


def test_the_backlog_curves_end_at_the_backlog_of_now(story: Path) -> None:
    asked = Repository(story)
    curves = series.levels(QUARTER, asked.backlog_changes(ORDERS, QUARTER, 3), "backlog", by="tenant")
    assert curves[0].name == NOISY
    assert curves[-1].name == OTHER and len(curves) == 4
    now = {row["tenant"]: row["backlog"] for row in asked.tenants(ORDERS, 20)}
    assert curves[0].last == now[NOISY]
    assert sum(curve.last or 0 for curve in curves) == sum(now.values())


def test_the_rates_curves_end_at_the_rates_of_now(story: Path) -> None:
    asked = Repository(story)
    changes = asked.rate_changes(ORDERS, QUARTER)
    total = next(row for row in asked.totals() if QueueKey.of(row) == ORDERS)
    for column in ("arrival_rate", "completion_rate"):
        curve = series.level(QUARTER, changes, column)
        assert curve is not None and curve.last == pytest.approx(total[column], rel=0.02)


def test_littles_law_finds_the_workers_that_are_busy(story: Path) -> None:
    asked = Repository(story)
    now = asked.concurrency(ORDERS)
    assert now is not None and now["littles_law"] == pytest.approx(WORKERS * PROCESSING_SECONDS, rel=0.05)
    curve = series.level(QUARTER, asked.concurrency_changes(ORDERS, QUARTER), "littles_law")
    assert curve is not None and curve.last == pytest.approx(now["littles_law"], rel=0.02)
    measured = series.last_values(QUARTER, asked.health_history(ORDERS, QUARTER), "in_flight")
    assert measured is not None and measured.last == now["in_flight"] == WORKERS


def test_ages_of_quiet_and_noisy_tenants_are_apart_and_complete(story: Path) -> None:
    asked = Repository(story)
    assert asked.once_noisy(ORDERS, QUARTER) == [NOISY]
    cells = asked.first_attempt_cells(ORDERS, QUARTER, [NOISY])
    (row,) = asked._rows("SELECT SUM(count) AS n FROM attempt_age WHERE kind = 'first_attempt' AND queue = 'orders'")
    assert sum(cell["count"] for cell in cells) == row["n"]
    _, quiet = series.quantiles(QUARTER, cells, 0.5, by="who")
    assert max(value for value in quiet.values if value is not None) > 10


def test_the_last_hour_of_every_queue_agrees_with_its_own_history(story: Path) -> None:
    asked = Repository(story)
    span = trends.last_hour(STORY_END)
    as_of = {QueueKey.of(row): row["as_of"] for row in asked.health()}
    recent = asked.recent(list(as_of), span)
    cells = asked.first_attempt_cells(ORDERS, span, [])
    (p99,) = series.quantiles(span, cells, 0.99, by="who")
    tails = {row["at"]: row for row in recent.tails if QueueKey.of(row) == ORDERS}
    assert [None if second not in tails else bucket_value(tails[second]["index"]) for second in span.seconds] == list(
        p99.values
    )
    found = trends.trends(span, recent, as_of, 30.0)
    for total in asked.totals():
        trend = found[QueueKey.of(total)]
        assert trend.backlog is not None and trend.backlog.last == total["backlog"]
        assert trend.arrivals is not None and trend.arrivals.last == pytest.approx(total["arrival_rate"], rel=0.05)
    dead = found[QueueKey("nats", "orders.dlq")]
    assert dead.strip == () and dead.depth is not None and dead.depth.last == 0


def test_finished_state_tells_the_last_hour_that_history_tells(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, span = Repository(story), trends.last_hour(STORY_END)
    as_of = {QueueKey.of(row): row["as_of"] for row in asked.health()}
    assert asked.past(recently.FINISHED) == [{"finished": True}]
    state = trends.trends(span, asked.recent(list(as_of), span), as_of, 30.0)
    monkeypatch.setattr(recently, "FINISHED", "SELECT FALSE AS finished")
    history = trends.trends(span, asked.recent(list(as_of), span), as_of, 30.0)
    assert history.keys() == state.keys()
    for key, wanted in history.items():
        got = state[key]
        assert (got.strip, got.depth) == (wanted.strip, wanted.depth)
        for name in ("backlog", "arrivals", "leavers"):
            one, other = getattr(wanted, name), getattr(got, name)
            assert (one is None) == (other is None), (key, name)
            if one is not None:
                assert [value is None for value in other.values] == [value is None for value in one.values], name
                known = ([value or 0.0 for value in curve.values] for curve in (other, one))
                assert next(known) == pytest.approx(next(known), rel=0.02, abs=0.5), (key, name)


def test_a_renewal_without_news_asks_the_lake_nothing(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Repository(story).at_one_instant()
    key = QueueKey.of(lake.totals()[0])
    monkeypatch.setattr(repository, "FIRST_SECONDS", 60.0)

    def read(past: Repository) -> list[dict[str, object]]:
        return past.backlog_changes(key, QUARTER, 3)

    first = lake.remembered(("nothing new", key), read)
    assert first is not None
    asked: list[object] = []
    monkeypatch.setattr(Worker, "query", lambda *told, **more: asked.append(told))
    again = Repository(story).at_one_instant()
    assert again.health() == lake.health() and again.noisy_tenants() is not None
    second = again.remembered(("nothing new", key), read)
    assert second is not None and second[0].backlog_changes(key, QUARTER, 3) == first[1] and asked == []


def test_a_page_that_takes_long_shows_one_instant(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    page = Repository(tmp_path).at_one_instant()
    assert page.alert_states() == page.alert_transitions() == []
    append_rows(lake, "alert_transitions", alerts_of(STORY_END))
    deadline = time.monotonic() + 30
    while not Repository(tmp_path).at_one_instant().alert_states():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert page.alert_states() == page.alert_transitions() == []


def test_a_page_that_shows_a_reading_of_before_knows_when_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.create()
    assert Repository(tmp_path).at_one_instant().read_at is None
    begun, go_on = datetime.now(UTC), threading.Event()
    monkeypatch.setattr(repository, "_present", lambda root: go_on.wait(60) and {})
    append_rows(lake, "alert_transitions", alerts_of(STORY_END))
    deadline = time.monotonic() + 30
    while (at := Repository(tmp_path).at_one_instant().read_at) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    go_on.set()
    assert at < begun


def test_each_question_of_the_present_says_on_which_tables_it_rests() -> None:
    for sql, resting in queries.RESTS_ON.items():
        tables, views = below(tables_of(sqlglot.parse_one(sql, read="spark")), NEWEST)
        finished = set() if {*NEWEST}.isdisjoint(views) else {"queue_state"}  # committed last: no more is shown
        assert {*tables} | finished == {*resting}


def test_what_has_not_changed_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = write_many_tenants(tmp_path, end=datetime.now(UTC), tenants=3)
    asked: list[str] = []
    query = Worker.query

    def noted(worker: Worker, sql: str, *told: Any, **more: Any) -> pa.Table:
        asked.append(sql)
        return query(worker, sql, *told, **more)

    monkeypatch.setattr(Worker, "query", noted)
    first, _ = repository._present(str(tmp_path))
    assert set(asked) == {*queries.PRESENT} - {queries.NOISY}, "the queues' health says that nobody is noisy"
    asked.clear()
    append_rows(lake, "alert_transitions", alerts_of(STORY_END))
    second, _ = repository._present(str(tmp_path))
    assert set(asked) == {sql for sql, tables in queries.RESTS_ON.items() if "alert_transitions" in tables}
    assert first[queries.ALERT_STATES] == [] and len(second[queries.ALERT_STATES]) == 2
    assert second[queries.LIMITS] is first[queries.LIMITS]
    asked.clear()
    lake.append("partials", lake.ensure("partials").to_pyarrow_dataset().to_table())
    assert repository._present(str(tmp_path))[0][queries.HEALTH] is second[queries.HEALTH]
    assert asked == [], "what came is not finished yet"
    finish(tmp_path)
    third, _ = repository._present(str(tmp_path))
    assert set(asked) == {queries.HEALTH, queries.TOTALS}
    backlogs = [sum(row["backlog"] for row in one[queries.TOTALS]) for one in (second, third)]
    assert backlogs[1] == 2 * backlogs[0]


def test_who_is_noisy_is_asked_where_somebody_is(story: Path) -> None:
    assert [row["tenant"] for row in repository._present(str(story))[0][queries.NOISY]] == ["acme-7"]


def test_who_was_noisy_for_a_moment_is_told_as_quiet() -> None:
    def rows(tenant: str, noisy: str, every: int = 1) -> list[dict[str, object]]:
        times = (STORY_END - timedelta(seconds=30 - place * every) for place in range(len(noisy)))
        told = zip(times, noisy, strict=True)
        key = {"broker": "nats", "queue": "orders", "subscriber": None, "tenant": tenant}
        return [{**key, "as_of": at, "noisy": one == "x"} for at, one in told]

    seen = [*rows("flickers", ".x..x."), *rows("lasts", "..xxx."), *rows("rests", "x..", 9), *rows("began", "....x")]
    names = ("broker", "queue", "subscriber", "tenant")
    schema = pa.schema(
        [*((name, pa.string()) for name in names), ("as_of", pa.timestamp("us", "UTC")), ("noisy", pa.bool_())]
    )
    with Worker(None) as worker:
        found = worker.query_over(
            {"tenant_backlog": pa.Table.from_pylist(seen, schema=schema)},
            to_duckdb(queries.once_noisy(ORDERS, QUARTER)),
        )
    assert found.column("tenant").to_pylist() == ["began", "lasts", "rests"]


def test_a_name_with_quotes_is_a_name(story: Path) -> None:
    asked = Repository(story)
    odd = QueueKey("nats", "o'r\\d\"ers' OR '1'='1", "s'")
    assert asked.tenants(odd, 5) == []
    assert asked.backlog_changes(odd, QUARTER, 5) == []
    recent = asked.recent([odd, QueueKey("' OR TRUE --", "x")], QUARTER)
    assert not any((*recent.tails, *recent.backlogs, *recent.rates, *recent.states))
    assert asked.first_attempt_cells(odd, QUARTER, ["it's", "back\\slash"]) == []


def test_a_lake_that_is_not_there_is_empty_and_stays_so(tmp_path: Path) -> None:
    root = tmp_path / "none"
    asked = Repository(root)
    assert asked.health() == [] and asked.limits() == [] and asked.noisy_tenants() == []
    assert asked.heartbeats().collected is None
    assert not root.exists()


def test_new_rows_are_seen_once_the_versions_are_looked_at_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    asked = Repository(tmp_path)
    assert asked.alert_states() == [] and asked.heartbeats().alerts is None
    append_rows(lake, "alert_transitions", alerts_of(STORY_END))
    deadline = time.monotonic() + 30
    while not asked.alert_states() or asked.heartbeats().alerts is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_lake_is_left_alone_while_asking_would_take_more_than_its_share() -> None:
    pace = Pace(8)
    assert pace.token((1,), 0.0) == (1,)
    pace.spent(0.5)
    assert pace.token((2,), 3.9) == (1,)
    assert pace.token((2,), 4.0) == (2,)
    assert pace.token((3,), 4.1) == (3,)  # this round has cost nothing yet


def test_what_is_now_waits_for_a_bounded_time_however_long_questions_waited_for_each_other() -> None:
    pace = Pace(2, most_seconds=10.0)
    assert pace.token((1,), 0.0) == (1,)
    for _ in range(6):  # each waited for those before it
        pace.spent(4.0)
    assert pace.token((2,), 9.9) == (1,)
    assert pace.token((2,), 10.0) == (2,)


def test_many_tenants_still_make_a_small_answer(tmp_path: Path) -> None:
    write_many_tenants(tmp_path, end=STORY_END, tenants=3_000)
    asked = Repository(tmp_path)
    assert len(asked.tenants(ORDERS, 20)) == 20
    curves = series.levels(QUARTER, asked.backlog_changes(ORDERS, QUARTER, series.TOP), "backlog", by="tenant")
    assert len(curves) == series.TOP + 1
    (total,) = asked.totals()
    assert total["tenants"] == 3_000 and sum(curve.last or 0 for curve in curves) == total["backlog"]
