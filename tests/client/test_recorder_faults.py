"""``sojourn.Recorder`` where its collector refuses, hangs or dies: repeated unchanged, or said and counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

import sojourn
from tests.client.collector import DIE_AFTER, DIE_BEFORE, Collector, Step, recorder_to

pytestmark = pytest.mark.usefixtures("short_pauses")

Eventually = Callable[..., None]
NOWHERE = "http://127.0.0.1:1"


FAULTS: list[list[Step]] = [
    [503, 500, 429],
    [(503, {"Retry-After": "0.05"}), (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})],
    [DIE_BEFORE, DIE_AFTER],
    [401, 404, 302],
    [408, 425, 599],
]


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_a_batch_is_repeated_unchanged_under_its_number_until_it_is_accepted(
    collector: Collector, faults: list[Step]
) -> None:
    collector.script = list(faults)
    recorder = recorder_to(collector)
    for number in range(50):
        recorder.enqueued("orders", f"m{number}")
    assert recorder.flush(60)
    tries = len(faults)
    assert all(request == collector.requests[0] for request in collector.requests[: tries + 1])
    assert sorted(event["message_id"] for event in collector.events) == sorted(f"m{number}" for number in range(50))
    stats = recorder.stats()
    assert (stats.failures, stats.sent, stats.recorded) == (tries, 50, 50)
    assert [sequence for _, sequence in collector.taken] == list(range(1, stats.batches + 1))
    assert recorder.close()


def test_the_server_s_pause_is_kept(collector: Collector) -> None:
    collector.script = [(503, {"Retry-After": "1"})]
    with recorder_to(collector) as recorder:
        recorder.enqueued("orders", "m")
        started = time.monotonic()
        assert recorder.flush(60)
    assert time.monotonic() - started >= 0.9


def test_a_batch_that_is_too_large_is_sent_in_parts(collector: Collector) -> None:
    collector.most_bytes = 4000
    with recorder_to(collector, flush_interval=5) as recorder:
        for number in range(300):
            recorder.enqueued("orders", f"m{number}")
        recorder.polled("orders", messages=0, waited=0.5)
        assert recorder.flush(60)
        recorder.enqueued("orders", "afterwards")
    assert [event["message_id"] for event in collector.events] == [f"m{n}" for n in range(300)] + ["afterwards"]
    assert len(collector.polls) == 1
    assert sorted(sequence for _, sequence in collector.taken) == list(range(1, len(collector.taken) + 1))


def test_an_event_that_alone_is_too_large_is_given_up_and_counted(collector: Collector) -> None:
    collector.most_bytes = 3000
    with recorder_to(collector, flush_interval=5) as recorder:
        recorder.failed("orders", "small")
        recorder.failed("orders", "large" * 300, reason="x" * 2000)
        recorder.failed("orders", "small too")
        recorder.flush(10)
    assert [event["message_id"] for event in collector.events] == ["small", "small too"]
    assert recorder.stats().refused == 1


def test_what_is_malformed_is_not_repeated_but_counted_and_said(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.script = [400]
    with recorder_to(collector) as recorder:
        recorder.enqueued("orders", "first")
        assert recorder.flush(60)
        recorder.enqueued("orders", "second")
    assert [event["message_id"] for event in collector.events] == ["second"]
    assert (recorder.stats().refused, recorder.stats().sent, recorder.stats().failures) == (1, 1, 0)
    assert "malformed" in caplog.text


def test_single_events_that_are_refused_are_counted_and_said(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.rejects = [{"list": "events", "index": 1, "reason": "no such type"}, {"list": "polls", "index": 0}]
    with recorder_to(collector, flush_interval=60) as recorder:
        for number in range(3):
            recorder.enqueued("orders", f"m{number}")
        assert recorder.flush(60)
    assert (recorder.stats().refused, recorder.stats().sent, recorder.stats().recorded) == (1, 2, 3)
    assert "1 of 3 events: no such type" in caplog.text


def test_a_wrong_token_is_said_once_and_never_shown(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.script = [401] * 5
    with caplog.at_level(logging.WARNING), recorder_to(collector, token="hunter2") as recorder:
        recorder.enqueued("orders", "m")
        assert recorder.flush(60)
    assert caplog.text.count("401") == 1
    assert "hunter2" not in caplog.text
    assert len(collector.events) == 1


@pytest.mark.parametrize("make", [sojourn.Recorder, sojourn.Limits])
def test_a_token_s_newline_is_cut_off_and_one_that_no_header_takes_is_refused_unseen(
    make: Callable[..., Any], collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match=r"token") as refusal:
        make(NOWHERE, token="hun\nter2")
    assert "ter2" not in str(refusal.value)
    with recorder_to(collector, token="hunter2\n") as recorder:
        recorder.enqueued("orders", "m")
    assert collector.headers[0]["Authorization"] == "Bearer hunter2"
    assert "hunter2" not in caplog.text


def test_a_poll_whose_names_are_no_text_harms_neither_itself_nor_what_follows(collector: Collector) -> None:
    with recorder_to(collector) as recorder:
        recorder.polled(b"orders", messages=0, waited=0.002, subscriber=7)  # type: ignore[arg-type]
        assert recorder.flush(60)
        recorder.enqueued("orders", "m")
    assert collector.polls == [
        {"broker": "rabbitmq", "queue": "orders", "subscriber": "7", "polls": 2, "empty_polls": 2}
    ]
    assert len(collector.events) == 1
