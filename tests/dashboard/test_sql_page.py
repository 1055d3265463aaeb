"""The page for SQL: checked, limited, cancelled; kept statements; downloads that spreadsheets do not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import asking, saved
from dashboard.asking import AT_ONCE, MOST_ROWS, StatementPool
from lake.errors import UserError
from lake.select import limited
from lake.store import Lake
from lake.texts import csv_text
from lake.worker.worker import Worker
from tests.dashboard.test_pages import AGES, opened, words
from tests.support.waiting import wait_until

#: More work than any test waits for.
ENDLESS = """
SELECT SUM(a.n * b.n) AS n FROM (SELECT explode(sequence(1, 3000000)) AS n) AS a
CROSS JOIN (SELECT explode(sequence(1, 3000000)) AS n) AS b"""


def answered(app: AppTest) -> AppTest:
    """The page once its statement has ended."""
    wait_until(lambda: app.session_state["ask"].done, "the answer", seconds=30)
    return app.run()


def test_a_statement_is_run_when_asked_to_and_its_rows_are_shown(story: Path, show: Callable[..., None]) -> None:
    show(story)
    app = opened("sql", sql="SELECT tenant, backlog FROM tenant_backlog_now WHERE noisy")
    assert "Answer" not in words(app)  # a link shows a statement, it does not run it
    said = words(answered(app.button[0].click().run()))
    assert "acme-7" in said and "1 row in" in said
    assert r"tenant\_backlog" in " ".join(one.label for one in app.expander)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE x",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM stage_tenants_now",
        "<b>",
    ],
)
def test_what_only_reads_is_run_and_nothing_else(story: Path, show: Callable[..., None], sql: str) -> None:
    show(story)
    app = opened("sql", sql=sql)
    said = words(app.button[0].click().run())
    assert "The statement was not run" in said and "<b>" not in said


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Give statements less than the page does, so that nobody waits for it."""

    def give(**less: float) -> None:
        monkeypatch.setattr(asking, "Worker", partial(Worker, **less))
        asking.pool.clear()  # type: ignore[attr-defined]

    yield give
    asking.pool.clear()  # type: ignore[attr-defined]


def test_a_statement_that_would_scan_everything_is_cancelled_and_the_page_goes_on(
    story: Path, show: Callable[..., None]
) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("sql", sql=ENDLESS)
    app.button[0].click().run()
    assert "Running for" in words(app) and app.button[0].disabled
    app = answered(app.button(key="cancel").click().run())  # once, while a process may be starting for it
    said = words(app)
    assert "The statement was not answered cancelled" in said and "What there is" in said
    assert not app.button[0].disabled and app.text_area(key="sql").value == ENDLESS
    app.text_area(key="sql").set_value("SELECT tenant FROM tenant_backlog_now WHERE noisy").run()
    assert "acme-7" in words(answered(app.button[0].click().run()))


@pytest.mark.parametrize(
    ("sql", "less", "told"),
    [
        (ENDLESS, {"timeout_seconds": 2.0}, "the query took longer than 2 s"),
        (
            "SELECT collect_list(a.n) AS n FROM (SELECT explode(sequence(1, 60000000)) AS n) AS a",
            {"memory_mb": 100},
            "more than 100 MB of memory",
        ),
    ],
)
def test_a_statement_that_goes_beyond_its_limits_says_which_and_the_page_goes_on(
    story: Path,
    show: Callable[..., None],
    limits: Callable[..., None],
    sql: str,
    less: dict[str, float],
    told: str,
) -> None:
    show(story, stale_after_seconds=AGES)
    limits(**less)
    app = opened("sql", sql=sql)
    said = words(answered(app.button[0].click().run()))
    assert "The statement was not answered" in said and told in said and "narrow it" in said
    limits()
    app.text_area(key="sql").set_value("SELECT tenant FROM tenant_backlog_now WHERE noisy").run()
    assert "acme-7" in words(answered(app.button[0].click().run()))


def test_a_statement_is_cancelled_and_too_many_at_once_are_refused(tmp_path: Path) -> None:
    Lake(tmp_path).create()
    pool = StatementPool(tmp_path)
    asks = [pool.ask(ENDLESS) for _ in range(AT_ONCE)]
    try:
        with pytest.raises(UserError, match="run already"):
            pool.ask("SELECT 1 AS a")
    finally:
        for ask in asks:
            wait_until(lambda ask=ask: ask.cancel() or ask.done, "cancelled")
    assert all("cancel" in ask.error and ask.rows is None for ask in asks)
    last = wait_until(lambda: pool.busy == 0 and pool.ask("SELECT 1 AS a"), "a free worker")
    wait_until(lambda: last.done, "the next answer")
    assert last.rows is not None and last.rows.to_pylist() == [{"a": 1}]
    for worker in pool.workers:
        worker.close()


@pytest.mark.parametrize(
    ("sql", "run"),
    [
        ("SELECT 1 AS a", "SELECT 1 AS `a` LIMIT 10"),
        ("SELECT 1 AS a LIMIT 3", "SELECT 1 AS `a` LIMIT 3"),
        (
            "SELECT 1 AS a ORDER BY a LIMIT 99",
            "SELECT * FROM (SELECT 1 AS `a` ORDER BY `a` LIMIT 99) AS `asked` LIMIT 10",
        ),
        ("SELECT 1 AS a LIMIT 2 + 3", "SELECT * FROM (SELECT 1 AS `a` LIMIT 2 + 3) AS `asked` LIMIT 10"),
        ("SELECT 1 AS a UNION ALL SELECT 2 AS a", "SELECT 1 AS `a` UNION ALL SELECT 2 AS `a` LIMIT 10"),
    ],
)
def test_no_answer_has_more_rows_than_are_shown(sql: str, run: str) -> None:
    assert limited(sql, (), 10) == run
    assert MOST_ROWS <= 10_000


def test_downloads_hold_nothing_that_a_spreadsheet_would_run() -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-2", "@x", "\tx", "plain", None, 'O\'Neill, "x"']
    rows = pa.table({"tenant": names, "backlog": [-1] * len(names)})
    lines = "".join(csv_text(rows.schema, rows.to_batches(), for_spreadsheets=True)).splitlines()
    assert lines[1:5] == ["'=cmd|' /C calc'!A0,-1", "'+1,-1", "'-2,-1", "'@x,-1"]
    assert lines[6:] == ["plain,-1", ",-1", '"O\'Neill, ""x""",-1']
    plain = "".join(csv_text(rows.schema, rows.to_batches()))
    assert "\n=cmd" in plain  # other programs get what is there


def test_statements_are_kept_for_others_and_forgotten(tmp_path: Path) -> None:
    assert saved.load(tmp_path) == {}
    saved.save(tmp_path, "  late \u202e ones ", "SELECT 1")
    assert list(saved.load(tmp_path)) == ["late \\u202e ones"]
    with pytest.raises(UserError, match="characters"):
        saved.save(tmp_path, "x" * 81, "SELECT 1")
    with pytest.raises(UserError, match="example"):
        saved.save(tmp_path, next(iter(saved.EXAMPLES)), "SELECT 1")
    saved.forget(tmp_path, "late \\u202e ones")
    assert saved.load(tmp_path) == {}
    (tmp_path / "state/dashboard/statements.json").write_text("[broken")
    assert saved.load(tmp_path) == {}


@pytest.mark.parametrize("sql", saved.EXAMPLES.values(), ids=list(saved.EXAMPLES))
def test_examples_are_statements_that_may_run(sql: str) -> None:
    from lake.tables import TABLES
    from lake.views import VIEWS

    assert limited(sql, {*TABLES, *VIEWS}, 10)


def test_without_a_lake_the_page_says_so(tmp_path: Path, show: Callable[..., None]) -> None:
    show(tmp_path / "nothing")
    assert "There is no lake yet" in words(opened("sql"))
