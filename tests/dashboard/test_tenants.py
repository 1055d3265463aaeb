"""The tenants' page: who is noisy, who waits for it, and one page out of a hundred thousand."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.questions.tenants import ORDERS, Wanted, counted, ranked
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from dashboard.services.tenants import backlogs, headline, waits
from lake.histogram import bucket_index
from lake.reader import Reader
from tests.dashboard.scene import write_many_tenants
from tests.dashboard.test_pages import AGES, heading, opened, words

KEY = QueueKey("nats", "orders")


def test_the_page_names_who_is_noisy_and_what_it_takes(story: Path, show: Callable[..., None]) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("tenants")
    said = words(app)
    assert heading(app) == "acme-7 is noisy"
    assert re.search(r"11 tenants on 2 queues, backlog 1,3\d\d, .* the noisy take [56]\d % of the work", said)
    # The parts of the verdict: its share of the backlog and of what is in flight, and how long it waits.
    assert (
        re.search(r"acme-7 ▲ noisy orders 8\d\d · 6\d % \d\d · [56]\d % 30 s", said)
        and "birch ✓ in time emails" in said
    )
    assert "Who waited when" in said and len(app.get("plotly_chart")) == 1
    one = opened("tenants", queue="emails", find="ED", heat="backlog")
    said = words(one)
    assert "cedar" in said and "birch" not in said and "1 tenant," in said and "Whose backlog when" in said
    assert one.selectbox(key="queue").value == "emails" and one.text_input(key="find").value == "ED"


def test_who_waits_beyond_the_target_beside_a_noisy_one_is_its_victim(story: Path) -> None:
    with Reader(story) as reader:
        wanted = Wanted(KEY, "", 20.0)
        (total,) = reader.query(counted(wanted)).to_pylist()
        rows = reader.query(ranked(wanted, "harm", 25, 1)).to_pylist()
        (calm,) = reader.query(counted(Wanted(QueueKey("nats", "emails"), "", 0.001))).to_pylist()
    assert (total["noisy"], total["victims"], total["late"]) == (1, 7, 0)
    assert headline(total, "orders") == "acme-7 is noisy on orders, 7 wait for it"
    assert [row["place"] for row in rows] == [0, *[1] * 7]
    assert calm["victims"] == 0 and calm["late"] >= 1  # nobody is noisy there: who waits is nobody's victim


@pytest.mark.parametrize("find", ["'; DROP", "%", "_", "\\", "<b>", "\u202e"])
def test_what_is_searched_for_is_text_and_nothing_else(story: Path, show: Callable[..., None], find: str) -> None:
    show(story, stale_after_seconds=AGES)
    app = opened("tenants", find=find)
    assert heading(app) == "No tenant has such a name"
    assert not app.get("plotly_chart")


def test_one_page_out_of_many_tenants_is_read_and_no_more(tmp_path: Path, show: Callable[..., None]) -> None:
    write_many_tenants(tmp_path, end=datetime.now(UTC), tenants=1_000)
    show(tmp_path, stale_after_seconds=AGES)
    app = opened("tenants", order="backlog", page="3")
    html = " ".join(element.proto.body for element in app.get("html"))
    rows = re.findall(r'<th scope="row">(tenant-\d+)</th>', html)
    assert len(rows) == 25 and len(set(rows)) == 25
    with Reader(tmp_path) as reader:
        every = reader.query(ranked(Wanted(None, "", 30.0), "backlog", 1_000, 1)).to_pylist()
    assert rows == [row["tenant"] for row in every[50:75]]
    assert "1,000 tenants" in words(app)
    assert (
        len(re.findall(r"tenant-\d+</th>", " ".join(e.proto.body for e in opened("tenants", page="99").get("html"))))
        == 25
    )


@pytest.mark.parametrize("order", [*ORDERS, "'; DROP TABLE x; --"])
def test_each_order_is_one_and_nonsense_is_the_first(story: Path, order: str) -> None:
    with Reader(story) as reader:
        rows = reader.query(ranked(Wanted(None, "", 30.0), order, 50, 1)).to_pylist()
    assert len(rows) == 11


def test_heat_maps_tell_what_nobody_knows_from_nothing() -> None:
    span = Span(0, 180, 60)
    shown = [(KEY, "birch", "birch"), (KEY, "elm", "elm")]
    row = {"broker": "nats", "queue": "orders", "subscriber": None, "tenant": "birch"}
    heat = waits(span, [{**row, "at": 120, "index": bucket_index(2.0), "attempts": 3}], shown)
    assert heat.values == ((None, pytest.approx(2.0, rel=0.01), None), (None, None, None))
    assert heat.words[0] == ("", "p99 2 s of 3", "")
    levels = backlogs(span, [{**row, "at": 60, "backlog": 5}, {**row, "at": 180, "backlog": 0}], shown)
    assert levels.values == ((5, 5, 0), (None, None, None))
