"""A lake that no analysis has finished: every command that shows its metrics says so in one line, and what to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alerts.backtest.run import newest
from alerts.settings import AlertSettings
from alerts.survey import survey
from lake.errors import UserError
from lake.store import Lake
from lake.worker.worker import Worker
from sojourn.mcp.tools import Evidence
from tests.lake.test_reader import append, enqueued
from tests.sojourn.test_cli import is_one_clear_line, sojourn
from tests.support.finishing import finish

SAID = ("nothing has finished this lake's state yet", "run `sojourn analyze --once`")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unfinished")
    append(Lake(root), enqueued(0, 3))
    return root


@pytest.mark.parametrize(
    "words",
    [("why", "orders"), ("sql", "--engine", "reader", "SELECT backlog FROM tenant_backlog_now")],
    ids=["why", "sql"],
)
def test_a_question_about_metrics_ends_with_it(root: Path, words: tuple[str, ...]) -> None:
    is_one_clear_line(sojourn(*words, "--lake", str(root), cwd=root), *SAID)


def test_what_was_counted_can_be_asked_for(root: Path) -> None:
    asked = ("sql", "--engine", "reader", "SELECT enqueued FROM partials", "--format", "json")
    run = sojourn(*asked, "--lake", str(root), cwd=root)
    assert (run.returncode, json.loads(run.stdout)) == (0, {"enqueued": 3}), run.stderr


def test_who_watches_goes_on_and_is_told_that_nothing_is_known(root: Path) -> None:
    run = sojourn("top", "--once", "--lake", str(root), cwd=root)
    assert run.returncode == 0 and all(part in run.stdout for part in SAID), run.stdout
    told = json.loads(sojourn("top", "--json", "--lake", str(root), cwd=root).stdout)
    assert all(part in told["headline"] for part in SAID) and told["queues"] == []


def test_rules_and_tools_are_not_answered_with_nothing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=SAID[0]):
        newest(root)
    with pytest.raises(UserError, match=SAID[0]):
        survey([], root, AlertSettings())
    with Worker(root, spare=False) as worker:
        evidence = Evidence(root, worker)
        for ask in (evidence.queues, lambda: evidence.why("orders"), lambda: evidence.sql("SELECT * FROM concurrency")):
            with pytest.raises(UserError, match=SAID[0]):
                ask()
        assert evidence.sql("SELECT enqueued FROM partials")["rows"] == [{"enqueued": 3}]
        finish(root)
        assert evidence.queues()["queues"]
