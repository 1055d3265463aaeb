"""Groups of tenants on the page: who was declared, who began together, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dashboard.run import GROUPS_VARIABLE
from dashboard.services.groups import Declared, declared, group_rows, together
from dashboard.services.keys import QueueKey
from tests.dashboard.conftest import STORY_END
from tests.dashboard.scene import TENANTS, write_story
from tests.dashboard.test_pages import AGES, heading, opened, words

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def begins(tenant: str, seconds_ago: float, queue: str = "orders") -> dict[str, object]:
    at = int((NOW - timedelta(seconds=seconds_ago)).timestamp())
    return {"broker": "nats", "queue": queue, "tenant": tenant, "at": at}


def test_who_begins_together_and_still_sends_is_a_group() -> None:
    usual = [begins(f"usual-{n}", 3000 - 60 * n) for n in range(20)]
    fake = [begins(f"fake-{n:02}", 300) for n in range(12)]
    gone = [begins(f"gone-{n:02}", 600) for n in range(12)]
    (group,) = together([*usual, *fake, *gone], [*usual, *fake], NOW)
    assert group.members == tuple(f"fake-{n:02}" for n in range(12))
    assert group.name == "fake-0… (began together)" and group.since == NOW - timedelta(seconds=300)


def test_on_another_queue_nobody_is_of_it_and_at_the_start_nobody_is_new() -> None:
    assert together([begins(f"all-{n}", 3000) for n in range(40)], [], NOW) == ()
    spread = [begins(f"x-{n}", 300, queue=f"q{n}") for n in range(12)]
    assert together([begins("old", 3000, queue=f"q{n}") for n in range(12)] + spread, spread, NOW) == ()


def test_declared_groups_are_those_of_the_queue_that_is_looked_at() -> None:
    found = (Declared(broker="nats", queue="orders", pattern="acme-*"), Declared(broker="x", queue="y", pattern="b*"))
    (group,) = declared(found, QueueKey("nats", "orders", "billing"))
    assert group.pattern == "acme-*" and len(declared(found, None)) == 2


def test_what_has_no_tenants_is_not_shown_and_shares_of_nothing_are_no_numbers() -> None:
    (group,) = declared((Declared(broker="nats", queue="orders", pattern="acme-*"),), None)
    empty = {"place": 0, "broker": "nats", "queue": "orders", "subscriber": None, "tenants": 0}
    idle = {
        **empty, "tenants": 2, "noisy": 0, "backlog": 0, "whole": 0, "in_flight": 0, "oldest_age_seconds": None,
        "arrival_rate": 0.0, "completion_rate": 0.0, "all_arrivals": 0.0, "first": "acme-1", "last": "acme-2",
    }  # fmt: skip
    (row,) = group_rows([group], [empty, idle], NOW)
    assert row.cells == ("2", "0", "–", "–", "0", "none waiting", "0/s → 0/s", "acme-1 to acme-2")


def test_the_page_shows_a_declared_group_with_what_its_tenants_have_together(
    story: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(story)
    told = Declared(broker="nats", queue="orders", pattern="acme-*").model_dump_json()
    monkeypatch.setenv(GROUPS_VARIABLE, f"[{told}]")
    app = opened("tenants", queue="orders", by="group")
    assert heading(app).startswith("At 1 Mar 03:06:59 UTC: acme-*: 1 tenant as one, holds ")
    said = words(app)
    assert "declared" in said and "by an entitlement" in said and "acme-7" in said
    monkeypatch.delenv(GROUPS_VARIABLE)
    assert (
        heading(opened("tenants", queue="orders", by="group")) == "At 1 Mar 03:06:59 UTC: No group of tenants on orders"
    )


def test_names_of_groups_are_text(tmp_path: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    names = {TENANTS[0]: "<b>x</b>-1"}
    write_story(tmp_path, end=STORY_END, seconds=40, noisy_from=30, names=names)
    show(tmp_path, stale_after_seconds=AGES)
    told = Declared(broker="nats", queue="orders", pattern="<b>x'*").model_dump_json()
    also = Declared(broker="nats", queue="orders", pattern="<b>x*").model_dump_json()
    monkeypatch.setenv(GROUPS_VARIABLE, f"[{told},{also}]")
    app = opened("tenants", by="group")
    assert "&lt;b&gt;x*" in " ".join(one.proto.body for one in app.get("html")) and not app.exception
