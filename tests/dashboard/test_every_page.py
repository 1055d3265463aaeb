"""What holds of each page whatever it is about. Bad input and faults, and where each page is held to them:

* no lake yet, an empty lake: `test_a_lake_without_data_shows_the_first_steps`
* tables that cannot be read: `test_a_broken_table_is_one_line_without_a_traceback`; journals, without which the rest is
  known: `test_journals_that_cannot_be_read_are_unknown_and_leave_the_rest`
* the analysis has not run yet, `test_pages.py`:
  `test_a_lake_that_no_analysis_has_finished_is_unknown_and_says_what_to_run`
* a part that is down – nobody collects, nobody evaluates: `test_a_part_that_is_down_is_said_on_every_page`; the process
  that reads history: `test_history_that_takes_more_than_there_is_leaves_the_rest_of_the_overview_as_it_is`
* a lake that is compacted and vacuumed meanwhile:
  `test_a_lake_that_is_compacted_and_vacuumed_meanwhile_is_shown_all_the_time`; statements and the lab:
  `test_compacted.py`
* tables of an earlier version: `test_tables_of_an_earlier_version_are_read_as_far_as_they_go`
* names with quotes, HTML, emoji, 300 characters; nonsense in the address:
  `test_names_that_mean_harm_stay_text_and_nonsense_in_the_address_is_no_error`; that they stay within their
  places, and a link to a queue that is not there, in a browser: `test_long_names.py`
* a statement that would scan everything, take too long or too much memory: `test_sql_page.py`
* all of these on the pages that run something: `test_the_pages_that_run_something_say_what_is_wrong_with_the_lake`,
  `test_nonsense_in_the_address_of_a_page_that_runs_something_is_shown_and_not_run`
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import write_deltalake

from dashboard import entry, evaluation, repository
from dashboard.behind import Behind
from dashboard.pages import story as picture
from dashboard.repository import Repository
from dashboard.run import API_VARIABLE
from dashboard.services.freshness import Evaluation
from dashboard.services.keys import QueueKey
from dashboard.services.overview import Verdict
from dashboard.services.steady import Picture
from lake.dataset import rows_of
from lake.store import Lake
from lake.tables import TABLES
from tests.dashboard.scene import TENANTS, write_samples, write_story
from tests.dashboard.test_browser import NAMES, QUEUE
from tests.dashboard.test_pages import AGES, heading, opened, words
from tests.support.deep import CHOSEN, examples
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE, wait_until

#: All that there are, and of them those that run something when they are told to and are not renewed.
EVERY = sorted(
    path.stem for path in Path(picture.__file__).parent.glob("*.py") if "\ndef render()" in path.read_text("utf-8")
)
RUNNING = ("lab", "sql")
#: Their headings tell a name, and how far what the pages say is to be trusted now.
OF_NO_INSTANT = ("queue", "pipeline")
PAGES = [page for page in EVERY if page not in RUNNING]


def some(first: int) -> list[str]:
    """A third of the pages, so that each is held to some of this, and in a deep run to all of it."""
    return PAGES if CHOSEN.deep else PAGES[first::3]


#: For everything that any page reads from its address.
NONSENSE = dict.fromkeys(
    ("queue", "find", "order", "page", "range", "heat", "alert", "tenant", "slo", "round", "whose"),
    "'; DROP TABLE x; -- <script>alert(1)</script>",
)
#: Columns that tables gained lately, and what an older lake therefore lacks.
GAINED = {
    "queue_samples": ("tenants", "status", "retention_margin", "oldest_unacked_seconds", "prefetch"),
    "queue_state": ("ready", "tenants"),
}
WAITED = 20.0 * PATIENCE
#: 300 characters, quotes and pictures among them.
LONG = "'\"🦜 o'Brien " + "é" * 288
LONG_QUEUE = (QUEUE + LONG)[:300]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    names = dict(zip(TENANTS, (*NAMES[:-1], LONG), strict=True))
    write_story(root, end=datetime.now(UTC), seconds=60, noisy_from=20, queue=LONG_QUEUE, names=names)
    return root


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("empty")
    Lake(root).create()
    return root


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("broken")
    write_story(root, end=datetime.now(UTC), seconds=5, noisy_from=5)
    for log in root.glob("gold/*/_delta_log/*.json"):
        log.write_text("not json")
    return root


@pytest.fixture(scope="module")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of whose alerts a commit is destroyed, and of whose actions every file is lost."""
    root = tmp_path_factory.mktemp("unread")
    write_story(root, end=datetime.now(UTC), seconds=60, noisy_from=20)
    max((root / TABLES["alert_transitions"].path).glob("_delta_log/*.json")).write_text("not json")
    for file in (root / TABLES["actions"].path).glob("*.parquet"):
        file.unlink()
    return root


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake as an earlier version left it: some columns are not there."""
    new, root = (tmp_path_factory.mktemp(name) for name in ("newer", "older"))
    write_story(new, end=datetime.now(UTC), seconds=60, noisy_from=20)
    for name, spec in TABLES.items():
        if Lake(new).exists(name):
            rows = rows_of(Lake(new).ensure(name)).drop_columns(
                [one for one in GAINED.get(name, ()) if one in spec.schema.names]
            )
            write_deltalake(str(root / spec.path), rows, partition_by=list(spec.partition_by) or None)
    return root


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sampled")
    write_samples(root, end=datetime.now(UTC))
    return root


@pytest.mark.parametrize("page", some(0))
def test_a_lake_without_data_shows_the_first_steps(empty: Path, show: Callable[..., None], page: str) -> None:
    for root in (empty / "nothing", empty):
        show(root)
        assert opened(page).title[0].value == "No queue has been seen yet"


@pytest.mark.parametrize("page", some(1))
def test_a_broken_table_is_one_line_without_a_traceback(broken: Path, show: Callable[..., None], page: str) -> None:
    show(broken)
    app = opened(page)
    assert heading(app) == "The lake could not be read" and "Traceback" not in words(app)


#: By page what is still told there, and what is said to be unknown.
STILL = {
    "overview": ("acme-7", "Acting now Unknown."),
    "queue": ("acme-7", "What happened Unknown."),
    "tenants": ("acme-7 is noisy", ""),
    "consumers": ("What rules find of the consumers is unknown", ""),
    "alerts": ("What fires is unknown", ""),
    "actions": ("What is in force is unknown", "In force Unknown."),
    "pipeline": ("Look at table alert_transitions and table actions", ""),
}


@pytest.mark.parametrize("page", some(2))
def test_journals_that_cannot_be_read_are_unknown_and_leave_the_rest(
    unread: Path, show: Callable[..., None], page: str
) -> None:
    show(unread, stale_after_seconds=AGES)
    said = words(opened(page, **({"queue": "orders"} if page == "queue" else {})))
    assert "The lake could not be read" not in said and "As of" in said
    for known in ("Alerts are unknown: their journal", "Limits and actions are unknown: their", *STILL.get(page, ())):
        assert known in said, page
    for never in ("No limit is in force", "No alert", "no alert rule", "nothing acted", "Nobody is held back"):
        assert never not in said, page


@pytest.mark.parametrize("page", some(0))
def test_readings_alone_fill_what_they_can(sampled: Path, show: Callable[..., None], page: str) -> None:
    show(sampled, stale_after_seconds=AGES)
    app = opened(page)
    assert heading(app) and "None" not in words(app)


@pytest.mark.parametrize("page", some(1))
def test_names_that_mean_harm_stay_text_and_nonsense_in_the_address_is_no_error(
    hostile: Path, show: Callable[..., None], page: str
) -> None:
    show(hostile, stale_after_seconds=AGES)
    for params in ({}, NONSENSE):
        app = opened(page, **params)
        assert not app.exception and heading(app)
        html = " ".join(element.proto.body for element in app.get("html") if "<style>" not in element.proto.body)
        for wrong in ("<script", "<img src=x", "<b>bold", 'href="http://evil', "\u202e"):
            assert wrong not in html, (page, wrong)
        assert "evil" not in " ".join(element.value for element in app.markdown)


@pytest.mark.parametrize("page", some(2))
def test_tables_of_an_earlier_version_are_read_as_far_as_they_go(
    older: Path, show: Callable[..., None], page: str
) -> None:
    show(older, stale_after_seconds=AGES)
    app = opened(page)
    assert not app.exception and heading(app), page
    assert "could not be read" not in words(app) and "acme-7" in words(opened("overview"))


def test_every_page_of_the_navigation_is_held_to_this() -> None:
    [listed] = re.findall(r"for page in \(([a-z_, ]+)\)", Path(entry.__file__).with_name("app.py").read_text("utf-8"))
    assert sorted(["overview", *listed.split(", ")]) == EVERY


@pytest.mark.parametrize("page", [*RUNNING, *some(1)])
def test_a_part_that_is_down_is_said_on_every_page(
    story: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    (nobody,) = free_ports(1)
    monkeypatch.setenv(API_VARIABLE, json.dumps({"url": f"http://127.0.0.1:{nobody}"}))
    evaluation._newest.clear()  # type: ignore[attr-defined]
    show(story)  # nobody has collected for it since spring, and nobody evaluates its rules
    app = opened(page)
    said = words(app)
    assert re.search(r"Data are \d+ d (\d+ h )?old", said) and "Collectors last wrote" in said, page
    assert page not in RUNNING or app.button[0].label == "Run", "the rest of it works"
    if page not in (*RUNNING, *OF_NO_INSTANT):  # what takes longer to count is said to be counted until then
        wait_until(lambda: heading(opened(page)).startswith("At 1 Mar 03:06:59 UTC: "), f"the heading of {page}")
    assert Evaluation.SILENT.value in said, page


@pytest.mark.parametrize("lake", ["nothing", "broken", "hostile", "empty", "older", "sampled"][: examples(3, 6)])
def test_the_pages_that_run_something_say_what_is_wrong_with_the_lake(
    request: pytest.FixtureRequest, show: Callable[..., None], tmp_path: Path, lake: str
) -> None:
    root = tmp_path / "nothing" if lake == "nothing" else request.getfixturevalue(lake)
    show(root, stale_after_seconds=AGES)
    asked = "SELECT broker, queue, tenant, backlog FROM tenant_backlog_now"
    simulated, statement = words(opened("lab", what="lake")), opened("sql", sql=asked)
    if lake == "nothing":
        assert "There is no lake yet" in words(statement) and "No queue has been seen yet" in simulated
        return
    wanted = {
        "empty": "No queue has been seen yet",
        "broken": "The lake could not be read",
        "sampled": "events make this possible, samples alone do not",
    }
    assert wanted.get(lake, "messages came from") in simulated
    statement.button[0].click().run()
    wait_until(lambda: statement.session_state["ask"].done, "the answer", seconds=30)
    told = words(statement.run())
    assert ("The statement was not answered" if lake == "broken" else " in ") in told and "Traceback" not in told
    html = " ".join(element.proto.body for element in statement.get("html"))
    for wrong in ("<script", "<img src=x", "<b>bold", 'href="http://evil', "\u202e"):
        assert wrong not in html, (lake, wrong)


@pytest.mark.parametrize("page", ["sql", "lab"])
def test_nonsense_in_the_address_of_a_page_that_runs_something_is_shown_and_not_run(
    hostile: Path, show: Callable[..., None], page: str
) -> None:
    show(hostile, stale_after_seconds=AGES)
    wrong = NONSENSE["queue"]
    for what in ("lake", wrong):
        app = opened(
            page, **{**NONSENSE, "sql": wrong, "scenario": wrong, "what": what, "runs": wrong, "minutes": wrong}
        )
        assert "<script>" not in "".join(element.proto.body for element in app.get("html"))
        assert not app.exception and not any(begun in app.session_state for begun in ("ask", "trial"))


def test_a_lake_that_is_compacted_and_vacuumed_meanwhile_is_shown_all_the_time(
    tmp_path: Path, show: Callable[..., None]
) -> None:
    write_story(tmp_path, end=datetime.now(UTC), seconds=30, noisy_from=10)
    show(tmp_path, stale_after_seconds=AGES)
    lake = Lake(tmp_path)
    for page in PAGES:
        assert "could not be read" not in words(opened(page)), page
        for name in ("partials", "queue_samples", "alert_transitions"):
            lake.append(name, rows_of(lake.ensure(name)).slice(0, 1))
            table = lake.ensure(name)
            table.optimize.compact()
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    wait_until(lambda: heading(opened("overview")).endswith("you"), "the overview after it all")


@pytest.mark.parametrize("page", some(0))
def test_no_page_waits_for_history(
    troubled: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    show(troubled, stale_after_seconds=AGES)
    fresh, go, asked = Behind(), Event(), repository._asked

    def held(root: str, tense: str, *told: Any, **more: Any) -> list[Any]:
        assert tense == "present" or go.wait(WAITED), "history was asked in the page"
        return asked(root, tense, *told, **more)

    monkeypatch.setattr(repository, "_behind", lambda root: fresh)
    monkeypatch.setattr(repository, "_asked", held)
    for name in ("FIRST_SECONDS", "HEADING_SECONDS"):
        monkeypatch.setattr(repository, name, 0.0)
    told = {"by": "group"} if page == "tenants" else {}
    try:
        early = opened(page, **told)
        assert heading(early) and "could not be read" not in words(early)
    finally:
        go.set()
    for _ in range(5):  # one answer asks for the next
        for known in list(fresh._known.values()):
            known.work.result(WAITED)
        later = opened(page, **told)
        if "being " not in words(later):
            break
    assert "being " not in words(later), page
    assert ("being " in words(early)) == (page in ("queue", "overview", "tenants", "dead_letters", "slo"))


def test_history_that_takes_more_than_there_is_leaves_the_rest_of_the_overview_as_it_is(
    story: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(story, stale_after_seconds=AGES)
    fresh = Behind()
    monkeypatch.setattr(repository, "_behind", lambda root: fresh)
    monkeypatch.setattr(repository, "_past_limits", {"memory_mb": 1, "timeout_seconds": 0.001})
    repository._worker.clear()  # type: ignore[attr-defined]
    said = words(opened("overview"))
    repository._worker.clear()  # type: ignore[attr-defined]
    assert "Its history could not be read" in said and "needs you" in said and "All queues" in said


def test_the_former_picture_stays_while_the_history_of_who_is_worst_now_is_read(
    troubled: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(troubled, stale_after_seconds=AGES)
    fresh, go, asked = Behind(), Event(), repository._asked
    monkeypatch.setattr(repository, "_behind", lambda root: fresh)
    first = opened("overview").session_state["pictured"].key
    other = next(key for row in Repository(troubled).health() if (key := QueueKey.of(row)) != first)
    fresh = Behind()
    read = Repository(troubled).behind(("story", other, True), lambda past: picture._read(past, other, seen=True))
    assert read is not None
    before = Picture(other, Verdict.FINE, 0.0)

    def held(root: str, tense: str, *told: Any, **more: Any) -> list[Any]:
        assert tense == "present" or go.wait(WAITED)
        return asked(root, tense, *told, **more)

    monkeypatch.setattr(repository, "_asked", held)
    monkeypatch.setattr(repository, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(repository, "HEADING_SECONDS", 0.0)
    try:
        app = opened("overview", session={"pictured": before})
        assert app.session_state["pictured"] == before and "how it came to this" in words(app)
        assert "Its history is being read" not in words(app)
    finally:
        go.set()
    fresh._known[("story", first, True)].work.result(WAITED)
    assert opened("overview", session={"pictured": before}).session_state["pictured"].key == first
