"""One attempt: timed, kept alive, and over when its time is over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sojourn
from sojourn.client.heartbeat import MOST_THREADS, Beats
from sojourn.client.polls import MOST_KEYS, Polls
from tests.client.collector import Collector

Eventually = Callable[..., None]


@pytest.fixture
def recorder(collector: Collector) -> Iterator[sojourn.Recorder]:
    with sojourn.Recorder(collector.url, broker="sqs", flush_interval=0.05) as recorder:
        yield recorder


def told(recorder: sojourn.Recorder, collector: Collector) -> list[tuple[Any, ...]]:
    assert recorder.flush(60)
    return [(event["event_type"], event.get("attempt"), event.get("reason")) for event in collector.events]


def test_an_attempt_that_ends_well_is_received_and_completed(recorder: sojourn.Recorder, collector: Collector) -> None:
    with recorder.attempt("orders", "m1", tenant="acme", attempt=1, enqueued_at=1.7e9):
        time.sleep(0.05)
    assert told(recorder, collector) == [("received", 1, None), ("completed", 1, None)]
    received, completed = collector.events
    assert received["tenant"] == completed["tenant"] == "acme"
    assert received["enqueued_at"] == completed["enqueued_at"] == 1_700_000_000_000_000
    assert 0.05 <= completed["processing_seconds"] < 5
    assert "processing_seconds" not in received


def test_an_exception_fails_it_under_the_exception_s_name_and_goes_on(
    recorder: sojourn.Recorder, collector: Collector
) -> None:
    with pytest.raises(KeyError), recorder.attempt("orders", "m1", attempt=3):
        raise KeyError("x")
    assert told(recorder, collector) == [("received", 3, None), ("failed", 3, "KeyError")]
    assert collector.events[1]["processing_seconds"] >= 0


@pytest.mark.parametrize("kind", ["failed", "dead_lettered", "sidelined", "expired", "delayed", "completed"])
def test_the_application_may_say_how_it_ended(recorder: sojourn.Recorder, collector: Collector, kind: str) -> None:
    with recorder.attempt("orders", "m1", attempt=1) as attempt:
        attempt.end(kind, "because")
    assert told(recorder, collector)[1] == (kind, 1, "because")


def test_an_ending_that_is_none_is_refused(recorder: sojourn.Recorder) -> None:
    with recorder.attempt("orders", "m1") as attempt, pytest.raises(ValueError, match="not the end"):
        attempt.end("received")


def test_without_a_deadline_there_is_all_the_time(recorder: sojourn.Recorder) -> None:
    with recorder.attempt("orders", "m1") as attempt:
        assert attempt.remaining() == float("inf")
        assert not attempt.expired
        attempt.check()


def test_past_the_deadline_work_stops(recorder: sojourn.Recorder, collector: Collector) -> None:
    with (
        pytest.raises(sojourn.DeadlineExceeded, match="m1"),
        recorder.attempt("orders", "m1", visibility_timeout=0.1) as attempt,
    ):
        assert 0 < attempt.remaining() <= 0.1
        attempt.check()
        time.sleep(0.15)
        assert attempt.expired
        assert attempt.remaining() == 0
        attempt.check()
    assert told(recorder, collector)[1] == ("failed", None, "DeadlineExceeded")


def test_the_deadline_counts_from_when_the_message_was_received(recorder: sojourn.Recorder) -> None:
    with recorder.attempt("orders", "m1", visibility_timeout=30, since=time.monotonic() - 31) as attempt:
        assert attempt.expired


def test_a_heartbeat_keeps_it_alive(recorder: sojourn.Recorder) -> None:
    with recorder.attempt("orders", "m1", visibility_timeout=0.9, heartbeat=lambda: None) as attempt:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            attempt.check()
            time.sleep(0.02)
    beats = attempt.heartbeats
    assert beats >= 3
    time.sleep(0.5)
    assert attempt.heartbeats == beats, "no heartbeat after the end"


@pytest.mark.parametrize("refusal", [lambda: False, lambda: 1 / 0], ids=["refuses", "raises"])
def test_heartbeats_that_fail_let_the_deadline_pass_and_then_stop(
    recorder: sojourn.Recorder, eventually: Eventually, refusal: Callable[[], object]
) -> None:
    with recorder.attempt("orders", "m1", visibility_timeout=0.3, heartbeat=refusal) as attempt:
        eventually(lambda: attempt.expired)
        failures = attempt.heartbeat_failures
        assert failures >= 1
        time.sleep(0.3)
        assert attempt.heartbeat_failures <= failures + 1
        assert attempt.heartbeats == 0


def test_a_heartbeat_that_comes_back_after_the_deadline_does_not_count(
    recorder: sojourn.Recorder, eventually: Eventually
) -> None:
    released = threading.Event()
    with recorder.attempt(
        "orders", "m1", visibility_timeout=0.2, heartbeat=lambda: bool(released.wait(10)) or True
    ) as attempt:
        eventually(lambda: attempt.expired)
        released.set()
        eventually(lambda: attempt.heartbeat_failures)
        assert attempt.expired
        assert attempt.heartbeats == 0


def test_heartbeats_share_a_few_threads_and_one_that_hangs_delays_no_other(eventually: Eventually) -> None:
    beats, released, calls = Beats(), threading.Event(), [0] * 50

    def beat(number: int) -> bool:
        calls[number] += 1
        return True

    hanging = [beats.start(lambda: released.wait(20), 0.01) for _ in range(MOST_THREADS - 1)]
    running = [beats.start(lambda number=number: beat(number), 0.02) for number in range(50)]  # type: ignore[misc]
    eventually(lambda: min(calls) >= 3)
    assert beats._threads <= MOST_THREADS
    released.set()
    for started in (*hanging, *running):
        beats.stop(started)
    time.sleep(0.1)
    before = list(calls)
    time.sleep(0.1)
    assert calls == before


def test_a_heartbeat_without_a_timeout_and_nonsense_are_refused(recorder: sojourn.Recorder) -> None:
    with pytest.raises(ValueError, match="needs the visibility_timeout"):
        recorder.attempt("orders", "m1", heartbeat=lambda: None)
    with pytest.raises(ValueError, match="above 0"):
        recorder.attempt("orders", "m1", visibility_timeout=0)


async def test_asynchronous_attempts_beat_on_their_own_loop(recorder: sojourn.Recorder, collector: Collector) -> None:
    loops = []

    async def extend() -> None:
        loops.append(asyncio.get_running_loop())

    async with recorder.attempt("orders", "m1", attempt=1, visibility_timeout=0.3, heartbeat=extend) as attempt:
        for _ in range(8):
            await asyncio.sleep(0.1)
            attempt.check()
    assert attempt.heartbeats == len(loops) >= 3
    assert set(loops) == {asyncio.get_running_loop()}
    assert told(recorder, collector) == [("received", 1, None), ("completed", 1, None)]


async def test_an_asynchronous_heartbeat_that_hangs_ends_with_the_deadline(recorder: sojourn.Recorder) -> None:
    async with recorder.attempt("orders", "m1", visibility_timeout=0.2, heartbeat=hang) as attempt:
        await asyncio.sleep(0.4)
        assert attempt.expired
        assert attempt.heartbeats == 0


async def test_a_heartbeat_that_only_promises_is_said_to_be_none(
    recorder: sojourn.Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    async with recorder.attempt("orders", "m1", visibility_timeout=0.2, heartbeat=lambda: hang()) as attempt:
        await asyncio.sleep(0.4)
        assert (attempt.heartbeats, attempt.heartbeat_failures) == (0, 2)
    assert "coroutine function" in caplog.text


async def hang() -> None:
    await asyncio.sleep(10)


async def test_a_cancelled_attempt_failed(recorder: sojourn.Recorder, collector: Collector) -> None:
    async def work() -> None:
        async with recorder.attempt("orders", "m1", attempt=1):
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told(recorder, collector)[1] == ("failed", 1, "CancelledError")


def test_a_coroutine_heartbeat_needs_async_with(recorder: sojourn.Recorder) -> None:
    with (
        pytest.raises(TypeError, match="async with"),
        recorder.attempt("orders", "m1", visibility_timeout=1, heartbeat=hang),
    ):
        pass


def test_polls_weigh_by_the_time_they_waited(recorder: sojourn.Recorder, collector: Collector) -> None:
    recorder.polled("orders", messages=0, waited=20)
    recorder.polled("orders", messages=3, waited=0.0001)
    recorder.polled("orders", messages=0, waited=0)
    recorder.polled("orders", messages=1, waited=0.5, subscriber="billing", broker="kafka")
    with recorder.poll("timed") as poll:
        time.sleep(0.05)
        poll.messages = 2
    with recorder.poll("timed"):
        pass
    with pytest.raises(KeyError), recorder.poll("raised"):
        raise KeyError
    assert recorder.flush(60)
    rows: dict[tuple[str, str, str | None], Counter[str]] = {}
    for row in collector.polls:
        counts = rows.setdefault((row["broker"], row["queue"], row.get("subscriber")), Counter())
        counts.update(polls=row["polls"], empty_polls=row["empty_polls"])
    assert rows["sqs", "orders", None]["polls"] == 20_002
    assert rows["sqs", "orders", None]["empty_polls"] == 20_001
    assert rows["kafka", "orders", "billing"]["polls"] == 500
    assert rows["kafka", "orders", "billing"]["empty_polls"] == 0
    assert rows["sqs", "timed", None]["polls"] >= 51
    assert rows["sqs", "timed", None]["empty_polls"] >= 1
    assert ("sqs", "raised", None) not in rows


def test_polls_of_countless_queues_stay_bounded_and_counted() -> None:
    polls = Polls()
    for number in range(10_000):
        polls.add(("sqs", f"q{number}", None), 0, 0)
    counts = polls.take()
    assert len(counts) <= MOST_KEYS + 1
    assert sum(weight for weight, _ in counts.values()) == 10_000
