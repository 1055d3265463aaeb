"""Answers recorded from nats-server 2.15.1, and the samples that they must become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.nats.oldest_unacked import Head, OldestUnacked
from collectors.nats.parse import microseconds
from collectors.nats.samples import samples, subject_samples
from collectors.nats.settings import StreamSettings
from collectors.samples import METRIC_NAMES, Sample, unread

RECORDED = json.loads((Path(__file__).parent / "recorded/answers.json").read_text())
_NEVER = {
    "delayed",
    "polls_total",
    "empty_polls_total",
    "acked_total",
    "redelivered_total",
    "prefetch",
    "consumer_utilisation_ratio",
    "publish_latency_seconds",
    "state",
    "status",
    "lost_total",
    "unknown_partitions",
    "transactional_lag",
    "transactional_age_seconds",
    "retrying",
    "oldest_first_attempt_age_seconds",
    "oldest_in_flight_age_seconds",
}
#: Worked out by hand from the recorded answers.
EXPECTED: dict[str, list[dict[str, Any]]] = {
    "ORDERS": [
        {
            "subscriber": None,
            "depth": 6,
            "in_flight": 2,
            "oldest_age_seconds": 0.315225,  # ts …22.083093 − message 2, stored …21.767868
            "published_total": 9,
            "delivered_total": 3,
            "in_flight_limit": 7,
            "visibility_timeout_seconds": 45.0,
            "staleness_seconds": 0.0,
            "queue_type": "workqueue",
            "missing": _NEVER | {"consumers", "retention_margin"},
        }
    ],
    "EVENTS": [  # "audit" acknowledges nothing: it is no subscriber
        {
            "subscriber": "billing",
            "depth": 9,
            "in_flight": 0,
            "oldest_age_seconds": 0.306145,  # ts …22.083792 − message 1, stored …21.777647
            "consumers": 0,
            "published_total": 9,
            "delivered_total": 0,
            "visibility_timeout_seconds": 30.0,
            "staleness_seconds": 0.0,
            "retention_margin": 91,  # 100 may be kept, 9 are, and the first is unread
            "queue_type": "limits",
            "missing": _NEVER | {"in_flight_limit"},
        }
    ],
    "IDLE": [
        {
            "subscriber": None,
            "in_flight": 0,
            "consumers": 0,
            "published_total": 4,
            "staleness_seconds": 0.0,
            "queue_type": "limits",
            "missing": _NEVER
            | {"delivered_total", "in_flight_limit", "visibility_timeout_seconds", "retention_margin"}
            | {"depth", "oldest_age_seconds"},
        }
    ],
}


def told(stream: str, **options: Any) -> list[Sample]:
    answers = RECORDED[stream]
    consumers = {info["name"]: info for info in answers["consumers"]}
    message = answers.get("head", {}).get("message")
    head = Head(message["seq"], microseconds(message["time"])) if message else None
    return samples(StreamSettings(name=stream), answers["stream"], consumers, dict.fromkeys(consumers, head), **options)


@pytest.mark.parametrize("stream", sorted(EXPECTED))
def test_recorded_answers_become_these_samples(stream: str) -> None:
    found = []
    for sample in told(stream):
        values = {name: getattr(sample, name) for name in METRIC_NAMES if getattr(sample, name) is not None}
        if "oldest_age_seconds" in values:
            values["oldest_age_seconds"] = round(values["oldest_age_seconds"], 6)
        found.append(values | {"subscriber": sample.subscriber, "missing": set(sample.unavailable)})
    assert found == EXPECTED[stream]


def everything() -> list[Sample]:
    """A sample of each shape that there is."""
    gone = {"work": None}
    orders = RECORDED["ORDERS"]
    consumers = {"work": orders["consumers"][0]}
    return [
        *(sample for stream in EXPECTED for sample in told(stream)),
        *samples(StreamSettings(name="ORDERS"), orders["stream"], consumers, gone),
        *subject_samples(StreamSettings(name="ORDERS", subjects=">", most_subjects=1), orders["stream"]),
        unread("ORDERS", 0, "refused"),
    ]


def test_every_number_that_is_unknown_has_its_reason_and_no_other() -> None:
    for sample in everything():
        unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None}
        assert unknown - {"dead_letter_for"} == set(sample.unavailable) - {"dead_letter_for"}, sample
        assert all(sample.unavailable.values())


def test_an_only_subscriber_has_the_name_under_which_the_tap_knows_it() -> None:
    assert [sample.subscriber for sample in told("ORDERS", named=True)] == ["work"]


def test_the_fullest_subjects_are_told_apart_and_the_others_together() -> None:
    chosen = StreamSettings(name="ORDERS", queue="orders", subjects=">", most_subjects=1)
    found = subject_samples(chosen, RECORDED["ORDERS"]["stream"])
    assert [(sample.queue, sample.depth) for sample in found] == [("orders/orders.1", 3), ("orders/*", 5)]
    whole = subject_samples(chosen.model_copy(update={"most_subjects": 3}), RECORDED["ORDERS"]["stream"])
    assert [(sample.queue.rsplit("/")[1], sample.depth) for sample in whole] == [
        ("orders.1", 3),
        ("orders.2", 3),
        ("orders.0", 2),
    ]


@pytest.mark.parametrize(
    ("retention", "chosen", "backlog", "depth"),
    [
        ("limits", {}, False, None),
        ("limits", {}, True, 4),
        ("limits", {"dead_letter_for": "orders"}, False, 4),
        ("workqueue", {}, False, 4),
        ("interest", {}, False, 4),
    ],
)
def test_a_stream_without_a_subscriber_is_a_backlog_only_where_somebody_is_meant_to_come(
    retention: str, chosen: dict[str, Any], backlog: bool, depth: int | None
) -> None:
    idle = RECORDED["IDLE"]["stream"]
    idle = idle | {"config": idle["config"] | {"retention": retention}}
    (sample,) = samples(StreamSettings(name="IDLE", **chosen), idle, {}, {}, backlog=backlog)
    assert sample.depth == depth
    # ts …22.084056 − first_ts …21.780257
    assert sample.oldest_age_seconds == (None if depth is None else pytest.approx(0.303799))
    assert all("a log" in sample.unavailable[name] for name in ("depth", "oldest_age_seconds") if depth is None)


# --- heads


def consumer(floor: int, outstanding: int = 1, **config: Any) -> dict[str, Any]:
    return {"ack_floor": {"stream_seq": floor}, "num_pending": outstanding, "num_ack_pending": 0, "config": config}


def stream(first: int = 1, created: str = "then") -> dict[str, Any]:
    return {"config": {"name": "S"}, "created": created, "state": {"first_seq": first}}


def at(sequence: int) -> dict[str, Any]:
    return {"message": {"seq": sequence, "time": f"2026-01-01T00:00:{sequence:02}Z"}}


def test_heads_are_looked_at_once_for_all_at_one_place_and_again_when_the_floor_moves() -> None:
    heads, here = OldestUnacked(), stream()
    pairs = [(here, consumer(4)), (here, consumer(4)), (here, consumer(9, outstanding=0))]
    heads.begin()
    places = heads.unknown(pairs)
    assert places == [("S", "then", 5, ">")]
    heads.learn(places, [at(7)])
    for _ in range(3):
        heads.begin()
        assert heads.unknown(pairs) == []
        assert heads.of(*pairs[0]) == Head(7, microseconds("2026-01-01T00:00:07Z"))
    heads.begin()
    assert heads.unknown([(here, consumer(7))]) == [("S", "then", 8, ">")]
    heads.learn([("S", "then", 8, ">")], [at(8)])
    heads.begin()
    heads.begin()
    assert heads.unknown(pairs) == [("S", "then", 5, ">")]  # what a cycle does not use is forgotten


def test_a_head_that_was_removed_or_whose_stream_was_made_anew_is_looked_for_again() -> None:
    heads, one = OldestUnacked(), consumer(4)
    heads.begin()
    heads.learn(heads.unknown([(stream(), one)]), [at(5)])
    heads.begin()
    assert heads.unknown([(stream(first=6), one)]) == [("S", "then", 5, ">")]
    assert heads.unknown([(stream(created="now"), one)]) == [("S", "now", 5, ">")]
    assert heads.of(stream(first=6), one) is None


def test_a_consumer_of_some_subjects_has_the_oldest_of_those() -> None:
    heads, here = OldestUnacked(), stream()
    several = consumer(0, filter_subjects=["a", "b"])
    heads.begin()
    assert heads.unknown([(here, several)]) == [("S", "then", 1, "a"), ("S", "then", 1, "b")]
    heads.learn([("S", "then", 1, "a"), ("S", "then", 1, "b")], [at(9), at(3)])
    head = heads.of(here, several)
    assert head is not None
    assert head.sequence == 3
    assert heads.unknown([(here, consumer(0, filter_subject="c"))]) == [("S", "then", 1, "c")]


@pytest.mark.parametrize(("policy", "in_flight"), [("explicit", None), ("none", 0)])
def test_consumers_that_are_no_subscribers_are_not_told_as_none(policy: str, in_flight: int | None) -> None:
    idle = RECORDED["IDLE"]["stream"]
    (sample,) = samples(StreamSettings(name="IDLE"), idle, {"x": {"config": {"ack_policy": policy}}}, {})
    assert (sample.depth, sample.in_flight, sample.consumers) == (None, in_flight, None)
    assert {name for name in METRIC_NAMES if getattr(sample, name) is None} - {"dead_letter_for"} == set(
        sample.unavailable
    )
