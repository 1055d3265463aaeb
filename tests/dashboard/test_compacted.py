"""The pages that run something over a lake whose files are replaced meanwhile, and gone afterwards: statements, and the
lake run again in the lab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

import pyarrow as pa
import pytest

from dashboard import labs
from lake.store import Lake
from lake.tables import MESSAGE_EVENTS
from tests.dashboard.scene import write_story
from tests.dashboard.test_lab import ended
from tests.dashboard.test_pages import AGES, opened, words
from tests.dashboard.test_sql_page import answered
from tests.lab.test_replay import START, arrivals, events

#: Tables of the present, of history, of what is not folded, and of records.
REPLACED = ("tenant_state", "queue_state", "partials", "message_events")
ASKED = """
SELECT p.tenant, p.enqueued, b.backlog
FROM (SELECT tenant, SUM(enqueued) AS enqueued FROM partials GROUP BY tenant) AS p
JOIN (SELECT tenant, SUM(backlog) AS backlog FROM tenant_backlog_now GROUP BY tenant) AS b ON b.tenant = p.tenant
ORDER BY p.tenant"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The story, and a minute of events of its queue, which end when it does."""
    root = tmp_path_factory.mktemp("compacted")
    end = datetime.now(UTC).replace(microsecond=0)
    made = write_story(root, end=end, seconds=60, noisy_from=20)
    later = end - timedelta(seconds=60) - START
    rows = [
        row
        | {
            "subscriber": None,
            "occurred_at": row["occurred_at"] + later,
            "ingested_at": row["ingested_at"] + later,
            "ingest_date": (row["ingested_at"] + later).date(),
        }
        for row in events(arrivals())
    ]
    made.append("message_events", pa.Table.from_pylist(rows, schema=MESSAGE_EVENTS.schema))
    return made


def replace_files(lake: Lake) -> int:
    """Write all rows of the tables to new files; how many files there were."""
    before = 0
    for name in REPLACED:
        table = lake.ensure(name)
        before += len(table.file_uris())
        table.optimize.z_order(["queue"])
    return before


@contextmanager
def replaced_meanwhile(lake: Lake) -> Iterator[None]:
    """Files are replaced all the time, and stay, as replaced files do for hours."""
    stop, times = Event(), []

    def work() -> None:
        while not stop.is_set():
            times.append(replace_files(lake))

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert times and all(times), "nothing was replaced"


def vacuumed(lake: Lake) -> None:
    for name in REPLACED:
        gone = lake.ensure(name).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        assert gone, name


def test_a_statement_has_the_same_rows_while_files_are_replaced_and_when_they_are_gone(
    lake: Lake, show: Callable[..., None]
) -> None:
    show(lake.root, stale_after_seconds=AGES)
    app = opened("sql", sql=ASKED)
    app = answered(app.button[0].click().run())
    first = app.session_state["ask"]
    assert first.error == "" and first.rows.num_rows > 1
    with replaced_meanwhile(lake):
        for _ in range(4):
            app = answered(app.button[0].click().run())
            again = app.session_state["ask"]
            assert again is not first and again.error == "" and again.rows.equals(first.rows)
    vacuumed(lake)
    app = answered(app.button[0].click().run())
    assert app.session_state["ask"].rows.equals(first.rows) and "was not answered" not in words(app)


def test_the_lab_runs_a_lake_again_while_its_files_are_replaced(lake: Lake, show: Callable[..., None]) -> None:
    show(lake.root, stale_after_seconds=AGES)
    app = opened("lab", what="lake", queue="orders", minutes="5", runs="1")
    assert "messages came from" in words(app)
    with replaced_meanwhile(lake):
        app = ended(app.button[0].click().run())
    said = words(app)
    assert app.session_state["trial"].error == "" and app.session_state["trial"].found, said
    assert "what is compared with" in said and not app.exception


@pytest.mark.deep
def test_the_lab_runs_a_lake_again_whose_files_are_gone_since_the_page_was_opened(
    lake: Lake, show: Callable[..., None]
) -> None:
    show(lake.root, stale_after_seconds=AGES)
    app = opened("lab", what="lake", queue="orders", minutes="5", runs="1")
    app = ended(app.button[0].click().run())
    first = app.session_state["trial"]
    assert first.error == "" and first.found
    replace_files(lake)
    vacuumed(lake)
    labs.laboratory(str(lake.root)).known.clear()  # what it remembers needs no files
    app = ended(app.button[0].click().run())
    again = app.session_state["trial"]
    assert again is not first and again.error == ""
    assert again.found == first.found and "what is compared with" in words(app)
