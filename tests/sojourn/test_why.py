"""``sojourn why``: for eyes, for programs, and for whoever mistypes a name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sojourn.cli.why import _there_are
from tests.dashboard.scene import write_samples, write_story
from tests.sojourn.test_cli import is_one_clear_line, sojourn


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("why")
    write_story(root, end=datetime(2026, 3, 1, 12, tzinfo=UTC))
    return root


def test_the_parts_are_told_with_what_changed(lake: Path) -> None:
    run = sojourn("why", "orders", "--lake", str(lake), cwd=lake)
    assert run.returncode == 0, run.stderr
    first, *lines = run.stdout.splitlines()
    assert first.startswith("nats/orders: First attempts wait ")
    assert lines[0].split()[0] == "arrivals" and "acme-7" in lines[0]
    assert lines[-1].startswith("Drained: not at the rates of the last minutes")
    said = [line.strip() for line in lines]
    assert "acme-7 is limited to 9.5/s: what limits hold back waits before the queue and has no part here." in said
    assert any(line.startswith("unknown") for line in said)


def test_programs_get_parts_that_add_up_and_the_statements(lake: Path) -> None:
    run = sojourn("why", "nats/orders", "--format", "json", "--lake", str(lake), cwd=lake)
    told = json.loads(run.stdout)
    rise = told["rise"]
    assert sum(part["seconds"] for part in rise["parts"]) == pytest.approx(rise["rise_seconds"])
    assert rise["wait_seconds"] - rise["wait_before_seconds"] == pytest.approx(rise["rise_seconds"])
    assert told["foretold"]["drained_in_seconds"]["p50"] is None and told["foretold"]["known_seconds"] == 90
    again = sojourn(
        "sql", "--engine", "reader", told["sql"]["tenants"], "--format", "json", "--lake", str(lake), cwd=lake
    )
    assert json.loads(again.stdout.splitlines()[0])["tenant"] == told["tenants"][0]["tenant"]


def test_a_queue_that_nobody_knows_is_one_clear_line(lake: Path) -> None:
    is_one_clear_line(sojourn("why", "order", "--lake", str(lake), cwd=lake), "'order'", "emails, orders")


def test_who_names_no_queue_is_told_in_one_line_which_there_are(lake: Path) -> None:
    is_one_clear_line(sojourn("why", "--lake", str(lake), cwd=lake), "which queue", "emails, orders")


def test_of_many_queues_some_are_named_and_where_the_others_stand() -> None:
    assert _there_are([f"q{number}" for number in range(12)]).endswith("q9 and 2 more, which `sojourn top` shows")
    assert "doctor" in _there_are([])


def test_where_no_message_is_seen_it_says_what_the_broker_tells_of_tenants(tmp_path: Path) -> None:
    acme = {"tenant": "acme", "depth": 340, "in_flight": 3, "delayed": 0, "oldest_age_seconds": 61.0}
    grove = {"tenant": "grove", "depth": 0, "in_flight": 1, "delayed": 0, "oldest_age_seconds": 2.0}
    write_samples(tmp_path, end=datetime.now(UTC), tenants=[grove, acme])
    said = sojourn("why", "orders", "--lake", str(tmp_path), cwd=tmp_path).stdout
    assert "Of each tenant the broker counts acme 340 waiting (oldest 1 min 1 s), grove 0 waiting." in said
    assert "Of each tenant" not in sojourn("why", "emails", "--lake", str(tmp_path), cwd=tmp_path).stdout
