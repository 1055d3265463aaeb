"""What CloudWatch's documented answers amount to: ages, totals that count a minute once, and reasons for the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collectors.sqs import parse
from collectors.sqs.cloudwatch import BATCH, METRICS, Point, Totals, queries, results, window
from collectors.sqs.settings import SqsBroker

ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / "cloudwatch.json").read_text())
NOON = 1795176000
ALL = tuple(METRICS)
NO_VALUE = "CloudWatch holds no value of the last minutes"


def totals(*names: str, begin: int = NOON - 300) -> Totals:
    made = Totals()
    (asked,) = queries(["orders", "idle"], ALL, begin, begin + 600)
    for name in names:
        for key, status, points in results(ANSWERS[name]):
            made.take(*asked.meant[key], status, points, begin)
    return made


def test_the_documented_answer_gives_the_newest_age_and_totals() -> None:
    told = totals("first page", "second page").told("orders", ALL)
    assert told.values == {
        "oldest_age_seconds": 72.0,
        "empty_polls_total": 0,
        "published_total": 247,
        "delivered_total": 110,
        "acked_total": 88,
    }
    assert told.reasons == {}


def test_absence_is_unknown_and_not_zero() -> None:
    told = totals("first page", "second page").told("idle", ALL)
    assert told.values == {}
    assert told.reasons == {
        "oldest_age_seconds": NO_VALUE,
        "empty_polls_total": NO_VALUE,
        "published_total": NO_VALUE,
        "delivered_total": "CloudWatch: Forbidden",
        "acked_total": NO_VALUE,
    }


def test_a_minute_that_is_told_again_counts_once_and_its_growth_is_added() -> None:
    made = totals("first page", "second page", "a minute later")
    told = made.told("orders", ALL)
    assert told.values["published_total"] == 100 + 140 + 60 + 5
    assert told.values["oldest_age_seconds"] == 0.0
    (asked,) = queries(["orders", "idle"], ALL, 0, 0)
    for key, status, points in results(ANSWERS["a minute later"]):
        made.take(*asked.meant[key], status, points, NOON - 300)
    assert made.told("orders", ALL).values == told.values


def test_a_total_never_falls() -> None:
    made, sent, begin = Totals(), METRICS["sent"], NOON - 600
    made.take("orders", sent, "Complete", [Point(NOON, 50.0)], begin)
    made.take("orders", sent, "Complete", [Point(NOON, 20.0)], begin)
    assert made.told("orders", ["sent"]).values["published_total"] == 50


def test_what_left_the_window_stays_counted_and_is_never_counted_again() -> None:
    made, sent = Totals(), METRICS["sent"]
    made.take("orders", sent, "Complete", [Point(NOON, 50.0)], NOON - 60)
    made.take("orders", sent, "Complete", [Point(NOON + 600, 1.0)], NOON + 60)
    made.take("orders", sent, "Complete", [Point(NOON, 50.0)], NOON - 60)  # our clock was set back
    assert made.told("orders", ["sent"]).values["published_total"] == 51


def test_a_queue_of_which_cloudwatch_tells_no_more_is_unknown_and_its_total_goes_on_later() -> None:
    made, sent = Totals(), METRICS["sent"]
    made.take("orders", sent, "Complete", [Point(NOON, 50.0)], NOON - 60)
    made.take("orders", sent, "Complete", [], NOON + 60)
    assert made.told("orders", ["sent"]).reasons == {"published_total": NO_VALUE}
    made.take("orders", sent, "Complete", [Point(NOON + 120, 2.0)], NOON + 60)
    assert made.told("orders", ["sent"]).values == {"published_total": 52}


def test_minutes_before_the_collector_started_are_not_counted() -> None:
    made, sent = Totals(since=NOON), METRICS["sent"]
    made.take("orders", sent, "Complete", [Point(NOON - 60, 50.0)], NOON - 600)
    assert made.told("orders", ["sent"]).values == {"published_total": 0}
    made.take("orders", sent, "Complete", [Point(NOON - 60, 55.0), Point(NOON, 3.0)], NOON - 600)
    assert made.told("orders", ["sent"]).values == {"published_total": 3}


def test_a_metric_that_is_not_asked_for_says_so() -> None:
    told = totals("first page").told("orders", ["age"])
    assert told.values == {"oldest_age_seconds": 72.0}
    assert told.reason == "not among the metrics that CloudWatch is asked for"


def test_a_queue_that_is_gone_is_forgotten() -> None:
    made = totals("first page", "second page")
    made.keep(["idle"])
    assert made.told("orders", ALL).values == {}


def test_calls_hold_at_most_500_metrics_and_ids_that_are_allowed() -> None:
    queues = [f"q{index}" for index in range(230)]
    asked = list(queries(queues, ALL, NOON, NOON + 600))
    assert [len(one.body["MetricDataQueries"]) for one in asked] == [BATCH, BATCH, 150]
    meant = [pair for one in asked for pair in one.meant.values()]
    assert len(set(meant)) == len(meant) == 230 * 5
    query = asked[0].body["MetricDataQueries"][0]
    assert query["Id"] == "m0"
    assert query["MetricStat"]["Metric"] == {
        "Namespace": "AWS/SQS",
        "MetricName": "ApproximateAgeOfOldestMessage",
        "Dimensions": [{"Name": "QueueName", "Value": "q0"}],
    }


def test_the_window_is_of_whole_minutes_and_longer_than_the_interval() -> None:
    begin, end = window(NOON + 17.5, 60)
    assert (begin, end) == (NOON - 600, NOON + 60)
    begin, end = window(NOON + 17.5, 3600)
    assert begin % 60 == 0 and begin < NOON - 3600


def test_what_is_not_of_the_documented_shape_is_left_out() -> None:
    odd: dict[str, Any] = {
        "MetricDataResults": [
            7,
            {"Id": 3},
            {"Id": "m0", "Timestamps": [NOON, "noon", NOON + 60], "Values": [True, 2, 3.0], "StatusCode": "Complete"},
            {"Id": "m1", "Timestamps": None, "Values": {}},
            {"Id": "m2", "Timestamps": [NOON], "Values": [-5]},
        ]
    }
    assert list(results(odd)) == [
        ("m0", "Complete", [Point(NOON + 60, 3.0)]),
        ("m1", "Complete", []),
        ("m2", "Complete", []),
    ]
    assert list(results({"MetricDataResults": "none"})) == [] and list(results({})) == []


def test_a_dead_letter_queue_has_no_count_of_published_messages() -> None:
    told = totals("first page", "second page").told("orders", ALL)
    sample = parse.sample(SqsBroker(), "orders", 0, {"ApproximateNumberOfMessages": "1"}, serves=["x"], told=told)
    assert sample.published_total is None and "dead-letter" in sample.unavailable["published_total"]
    assert sample.delivered_total == 110
