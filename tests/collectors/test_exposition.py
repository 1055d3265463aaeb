"""The Prometheus page: what is known is shown under its declared name, what is unknown is absent."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from collectors.board import Board
from collectors.exposition import Exposition
from collectors.samples import Sample, unread
from collectors.selfmetrics import SelfMetrics
from collectors.tally import Tally
from lake.catalogue import OWN_METRICS, SAMPLE_METRICS
from lake.store import Lake
from tests.collectors.rows import event_rows, summary_rows

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LABEL_NAMES = ("broker", "queue", "subscriber")


@pytest.fixture
def metrics() -> SelfMetrics:
    return SelfMetrics()


@pytest.fixture
def board(metrics: SelfMetrics) -> Board:
    board = Board()
    metrics.registry.register(Exposition(board))
    return board


def scrape(metrics: SelfMetrics, accept: str = "text/plain") -> tuple[str, str]:
    """The page and its content type, over HTTP as Prometheus gets it."""
    port = metrics.serve("127.0.0.1", 0)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def series(page: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, label values) → value of every queue's series."""
    return {
        (sample.name, tuple(sample.labels.get(name, "") for name in LABEL_NAMES)): sample.value
        for family in parse_text(page)
        for sample in family.samples
        if sample.name.startswith("sojourn_queue_")
    }


FULL: dict[str, Any] = {
    metric.name: f"a {metric.name}" if metric.kind == "text" else 7 + number
    for number, metric in enumerate(SAMPLE_METRICS)
}


def test_every_metric_of_the_catalogue_is_shown_under_its_name(board: Board, metrics: SelfMetrics) -> None:
    board.show("s", "mq", [Sample("orders", 5_000_000, "billing", **FULL)])
    page, _ = scrape(metrics)
    shown = series(page)
    for metric in SAMPLE_METRICS:
        if metric.kind != "text":
            assert shown[f"sojourn_queue_{metric.name}", ("mq", "orders", "billing")] == FULL[metric.name]
            kind = "counter" if metric.kind == "counter" else "gauge"
            assert f"# TYPE sojourn_queue_{metric.name} {kind}" in page
    (info,) = [
        sample for family in parse_text(page) for sample in family.samples if sample.name == "sojourn_queue_info"
    ]
    texts = {metric.name: FULL[metric.name] for metric in SAMPLE_METRICS if metric.kind == "text"}
    assert info.labels == {"broker": "mq", "queue": "orders", "subscriber": "billing", **texts}
    assert shown["sojourn_queue_sampled_timestamp_seconds", ("mq", "orders", "billing")] == 5.0


def test_what_is_unknown_is_absent_and_not_zero(board: Board, metrics: SelfMetrics) -> None:
    board.show("s", "mq", [Sample("orders", 1, depth=0), unread("locked", 1, "no permission")])
    shown = series(scrape(metrics)[0])
    assert {name for name, labels in shown if labels[1] == "orders"} == {
        *("sojourn_queue_depth", "sojourn_queue_staleness_seconds", "sojourn_queue_sampled_timestamp_seconds")
    }
    assert {name for name, labels in shown if labels[1] == "locked"} == {"sojourn_queue_sampled_timestamp_seconds"}


def test_a_sampler_that_reads_nothing_now_shows_nothing(board: Board, metrics: SelfMetrics) -> None:
    board.show("s", "mq", [Sample("orders", 1, depth=3)])
    board.forget("s")
    assert series(scrape(metrics)[0]) == {}


@pytest.mark.parametrize("name", ['with "quotes"', "two\nlines", "back\\slash", "stray \udc80 byte", "ключ", ""])
def test_no_queue_s_name_spoils_the_scrape(board: Board, metrics: SelfMetrics, name: str) -> None:
    board.show("s", "mq", [Sample(name, 1, depth=3), Sample("orders", 1, depth=4)])
    for accept, parse in (("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)):
        page, _ = scrape(metrics, accept)
        depths = {
            sample.labels["queue"]: sample.value
            for family in parse(page)
            for sample in family.samples
            if sample.name == "sojourn_queue_depth"
        }
        assert depths == {name.encode("utf-8", "replace").decode(): 3, "orders": 4}


def test_of_two_samples_of_one_queue_the_newer_is_shown(board: Board, metrics: SelfMetrics) -> None:
    board.show("one", "mq", [Sample("orders", 2, depth=5)])
    board.show("two", "mq", [Sample("orders", 1, depth=9)])
    assert series(scrape(metrics)[0])["sojourn_queue_depth", ("mq", "orders", "")] == 5


def test_openmetrics_is_given_to_those_who_ask_for_it(board: Board, metrics: SelfMetrics) -> None:
    board.show("s", "mq", [Sample("orders", 1, **FULL)])
    text, plain = scrape(metrics)
    openmetrics, negotiated = scrape(metrics, OPENMETRICS)
    assert plain.startswith("text/plain") and not text.rstrip().endswith("# EOF")
    assert negotiated.startswith("application/openmetrics-text") and openmetrics.rstrip().endswith("# EOF")
    assert list(parse_openmetrics(openmetrics))


def test_names_follow_the_prometheus_practice() -> None:
    for metric in (*SAMPLE_METRICS, *OWN_METRICS):
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.name.endswith("_seconds") == (metric.unit == "seconds"), metric.name
        assert metric.name.endswith("_ratio") == (metric.unit == "ratio"), metric.name
        assert metric.help and not metric.help.endswith(".")


def test_the_own_metrics_are_the_declared_ones(metrics: SelfMetrics) -> None:
    declared = {metric.name.removesuffix("_total") for metric in OWN_METRICS}
    assert {family.name for family in metrics.registry.collect()} == declared


def counted(metrics: SelfMetrics) -> dict[tuple[str, str, str], float]:
    return {
        (sample.labels["queue"], sample.labels["tenant"], sample.labels["event_type"]): sample.value
        for family in metrics.messages.collect()
        for sample in family.samples
        if sample.name == "sojourn_messages_total"
    }


def test_tenants_beyond_the_bound_are_counted_as_other(lake: Lake, metrics: SelfMetrics) -> None:
    tally = Tally(lake, metrics.messages, most_series=3)
    tally.append("message_events", event_rows("orders", ["a", "b", "b", "c", "d", "e", None]))
    tally.append("message_events", event_rows("late", ["a", "b"]))
    tally.append("message_events", event_rows("later", ["a"]))
    tally.append("message_events", event_rows("last", ["a"]))
    tally.append("message_events", event_rows("too many", ["a"]))
    shown = counted(metrics)
    assert sum(shown.values()) == 12
    assert len([key for key in shown if key[1] != "other"]) == 3
    assert shown["late", "other", "enqueued"] == 2
    assert shown["other", "other", "enqueued"] == 2, "the queues beyond the bound"


def test_only_what_was_appended_is_counted_and_only_once(lake: Lake, metrics: SelfMetrics) -> None:
    tally = Tally(lake, metrics.messages, most_series=100)
    for _ in range(2):
        tally.append("message_events", event_rows("orders", ["a"]), app_id="x", version=1)
    assert counted(metrics) == {("orders", "a", "enqueued"): 1}


def test_events_in_summaries_are_counted_too(lake: Lake, metrics: SelfMetrics) -> None:
    tally = Tally(lake, metrics.messages, most_series=100)
    tally.append("event_summaries", summary_rows("orders", ["a", "a", "b"]))
    assert counted(metrics) == {("orders", "a", "enqueued"): 2, ("orders", "b", "enqueued"): 1}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "[::1"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Accept": "\xff\xfe"}, 200),
    ],
)
def test_a_web_page_cannot_read_the_metrics_of_this_machine(
    metrics: SelfMetrics, headers: dict[str, str], status: int
) -> None:
    port = metrics.serve("127.0.0.1", 0)
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    assert httpx.get(f"http://127.0.0.1:{port}/metrics", headers=raw).status_code == status


def test_where_others_scrape_the_metrics_they_may_call_it_what_they_like(metrics: SelfMetrics) -> None:
    port = metrics.serve("0.0.0.0", 0)
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": "sojourn-collect:9464"})
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert "sojourn_collector_success" in answer.text
    few = httpx.get(f"http://127.0.0.1:{port}/metrics?name[]=sojourn_collector_success", headers={"Host": "x"})
    assert len(few.text) < len(answer.text)
