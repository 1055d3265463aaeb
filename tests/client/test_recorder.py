"""``sojourn.Recorder``: everything arrives, once; nothing ever waits for it."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import sojourn
from collectors.validate import default_event_id
from tests.client.collector import DIE_AFTER, DIE_BEFORE, HANG, Collector, collecting, recorder_to
from tests.client.places import NOWHERE

pytestmark = pytest.mark.usefixtures("short_pauses")

Eventually = Callable[..., None]


def test_an_event_arrives_as_it_was_told(collector: Collector) -> None:
    with recorder_to(collector, worker="w1", token="secret") as recorder:
        recorder.completed(
            "orders",
            'm "1"\n',
            subscriber="billing",
            tenant="åcme",
            attempt=2,
            enqueued_at=1_700_000_000.25,
            occurred_at=1_700_000_001_500_000_999,
            processing_seconds=0.125,
            priority=-3,
            trace_id="t1",
            reason="why",
        )
    (event,) = collector.events
    expected_id = default_event_id("rabbitmq", "orders", "billing", 'm "1"\n', "completed", 2, 1_700_000_001_500_000)
    assert event == {
        "event_id": expected_id,
        "event_type": "completed",
        "broker": "rabbitmq",
        "queue": "orders",
        "subscriber": "billing",
        "tenant": "åcme",
        "message_id": 'm "1"\n',
        "attempt": 2,
        "enqueued_at": 1_700_000_000_250_000,
        "occurred_at": 1_700_000_001_500_000,
        "processing_seconds": 0.125,
        "priority": -3,
        "worker": "w1",
        "trace_id": "t1",
        "reason": "why",
    }
    assert collector.headers[0]["Authorization"] == "Bearer secret"
    assert collector.paths == ["/v1/events"]


def test_each_kind_of_event_has_its_call_and_what_is_not_known_is_left_out(collector: Collector) -> None:
    kinds = ("enqueued", "received", "completed", "failed", "dead_lettered", "expired", "sidelined", "delayed")
    before = time.time()
    with recorder_to(collector) as recorder:
        for kind in kinds:
            getattr(recorder, kind)("orders", kind, broker="sqs")
    assert [event["event_type"] for event in collector.events] == list(kinds)
    for event in collector.events:
        assert set(event) == {"event_id", "event_type", "broker", "queue", "message_id", "occurred_at"}
        assert event["broker"] == "sqs"
        assert before - 1 <= event["occurred_at"] / 1e6 <= time.time() + 1


@pytest.mark.parametrize(
    ("instant", "micros"),
    [
        (1_700_000_000, 1_700_000_000_000_000),
        (1_700_000_000.5, 1_700_000_000_500_000),
        (1_700_000_000_123_456_789, 1_700_000_000_123_456),
        (datetime(2023, 11, 14, 22, 13, 20, 7, UTC), 1_700_000_000_000_007),
        (datetime(2023, 11, 15, 0, 13, 20, tzinfo=timezone(timedelta(hours=2))), 1_700_000_000_000_000),
        (datetime(2023, 11, 14, 22, 13, 20), 1_700_000_000_000_000),  # noqa: DTZ001
        ("yesterday", None),
        (float("nan"), None),
        (-1, None),
        (True, None),
        (1e15, None),
    ],
)
def test_an_instant_is_seconds_nanoseconds_or_a_datetime_and_nonsense_is_null(
    collector: Collector, instant: Any, micros: int | None
) -> None:
    with recorder_to(collector) as recorder:
        recorder.received("orders", "m", enqueued_at=instant)
    assert collector.events[0].get("enqueued_at") == micros
    assert recorder.stats().unsound == (micros is None)


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text of mine")


def test_no_value_harms_its_event_its_batch_or_the_application(collector: Collector) -> None:
    with recorder_to(collector) as recorder:
        recorder.received("orders", "good", attempt=1)
        recorder.received("orders", "bad attempt", attempt="x")  # type: ignore[arg-type]
        recorder.received("orders", "huge attempt", attempt=2**40)
        recorder.completed("orders", "bad seconds", processing_seconds=float("inf"))
        recorder.received("orders", "bad priority", priority=True)
        recorder.received("orders", "lone surrogate \ud800")
        recorder.received("orders", 17)  # type: ignore[arg-type]
        recorder.received("orders", "long", reason="x" * 1_000_000)
        recorder.received("orders", "no instant", occurred_at="soon")  # type: ignore[arg-type]
        recorder.received("orders", Hostile(), tenant="t")  # type: ignore[arg-type]
        recorder.enqueued("orders", "")
    events = {event["message_id"]: event for event in collector.events}
    assert "attempt" not in events["bad attempt"]
    assert "attempt" not in events["huge attempt"]
    assert "processing_seconds" not in events["bad seconds"]
    assert "priority" not in events["bad priority"]
    assert "lone surrogate ?" in events
    assert "17" in events
    assert len(events["long"]["reason"]) == 2048
    # What has no id cannot be told apart; it is counted.
    assert len(events) == 9
    assert sum(row["received"] + row["enqueued"] for row in collector.summaries) == 2
    assert recorder.stats().recorded == 11
    assert recorder.stats().unsound == 7
    assert recorder.stats().refused == recorder.stats().dropped == 0


def test_without_a_collector_everything_is_counted_marks_stay_single_and_memory_is_bounded(
    eventually: Eventually,
) -> None:
    with collecting() as collector:
        collector.stop()
        recorder = recorder_to(collector, capacity=1000)
        for number in range(20_000):
            recorder.enqueued("orders", f"m{number}", tenant=f"t{number % 7}")
            if number % 100 == 0:
                recorder.failed("orders", f"m{number}", attempt=1, reason="Timeout")
        buffer = recorder._buffer
        assert len(buffer.events) <= 1250
        assert len(buffer._marks) <= 500
        assert buffer._rollup.entries <= 1000
        stats = recorder.stats()
        assert (stats.recorded, stats.pending, stats.sent, stats.dropped) == (20_200, 20_200, 0, 0)
        assert stats.conflated > 15_000
        assert stats.conflated_marks == 0
        collector.start()
        assert recorder.flush(60)
        assert recorder.close()
        assert collector.counts() == {"enqueued": 20_000, "failed": 200}
        assert sum(event["event_type"] == "failed" for event in collector.events) == 200
        assert sum(body["conflated"] for body in collector.taken.values()) == recorder.stats().summarised


def test_beyond_the_last_bound_marks_are_summarised_too_and_counted_apart() -> None:
    with collecting() as collector:
        collector.stop()
        recorder = recorder_to(collector, capacity=1000)
        for number in range(10_000):
            recorder.failed("orders", f"m{number}", tenant=f"t{number}", attempt=1, occurred_at=1.7e9 + number)
        stats = recorder.stats()
        assert stats.conflated_marks == stats.conflated > 7000
        assert stats.coarsened > 0
        assert recorder._buffer._rollup.entries <= 1000
        assert stats.recorded == 10_000
        collector.start()
        assert recorder.flush(100)
        recorder.close()
        assert collector.counts() == {"failed": 10_000}


def test_a_collector_that_hangs_delays_no_call(collector: Collector) -> None:
    collector.script = [HANG]
    recorder = recorder_to(collector, capacity=512)
    recorder.enqueued("orders", "first")
    slowest = 0.0
    for number in range(5_000):
        started = time.perf_counter()
        recorder.enqueued("orders", f"m{number}")
        slowest = max(slowest, time.perf_counter() - started)
    assert slowest < 5  # it waits for no answer: those come after 10 s at the earliest
    collector.released.set()
    assert recorder.flush(60)
    assert recorder.stats().recorded == 5_001 == sum(collector.counts().values())
    recorder.close()


def test_of_many_threads_nothing_is_lost_or_doubled(collector: Collector) -> None:
    collector.script = [503, DIE_AFTER, 200, 200, DIE_BEFORE, 503]
    recorder = recorder_to(collector, capacity=4096, flush_interval=0.01)

    def work(worker: int) -> None:
        for number in range(4_000):
            recorder.enqueued("orders", f"{worker}-{number}", tenant=f"t{worker}")
            recorder.polled("orders", messages=0, waited=0)
            if number % 8 == 0:
                recorder.failed("orders", f"{worker}-{number}", attempt=1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.close(20)
    assert collector.counts() == {"enqueued": 32_000, "failed": 4_000}
    ids = Counter(event["event_id"] for event in collector.events)
    assert set(ids.values()) <= {1}
    assert sum(row["polls"] for row in collector.polls) == 32_000
    assert sum(row["empty_polls"] for row in collector.polls) == 32_000
    stats = recorder.stats()
    assert (stats.recorded, stats.sent + stats.summarised, stats.pending) == (36_000, 36_000, 0)
    per_tenant = Counter(event["tenant"] for event in collector.events if event["event_type"] == "enqueued")
    for row in collector.summaries:
        per_tenant[row["tenant"]] += row["enqueued"]
    assert +per_tenant == {f"t{worker}": 4_000 for worker in range(8)}


def test_close_gives_up_in_time_and_says_what_was_left(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.script = [HANG] * 10
    recorder = recorder_to(collector)
    recorder.enqueued("orders", "m1")
    recorder.enqueued("orders", "m2")
    started = time.monotonic()
    assert not recorder.close(0.2)
    assert time.monotonic() - started < 5
    recorder.enqueued("orders", "too late")
    assert recorder.stats().dropped == 3
    assert "2 events were not sent" in caplog.text


def test_a_forgotten_recorder_sends_what_it_has_and_ends_its_thread(
    collector: Collector, eventually: Eventually
) -> None:
    recorder = recorder_to(collector, flush_interval=60)
    thread, gone = recorder._sender._thread, weakref.ref(recorder)
    recorder.enqueued("orders", "m")
    del recorder
    gc.collect()
    assert gone() is None
    eventually(lambda: not thread.is_alive())
    assert len(collector.events) == 1


def test_who_keeps_only_a_call_keeps_its_recorder(collector: Collector, eventually: Eventually) -> None:
    enqueued = recorder_to(collector).enqueued
    gc.collect()
    enqueued("orders", "m")
    eventually(lambda: collector.events)


def test_a_forked_child_sends_its_own_and_not_its_parent_s_events(collector: Collector) -> None:
    recorder = recorder_to(collector, flush_interval=60)
    recorder.enqueued("orders", "parent")
    recorder.polled("orders", messages=1, waited=0)
    child = os.fork()
    if child == 0:
        recorder.enqueued("orders", "child")
        os._exit(0 if recorder.close(10) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [event["message_id"] for event in collector.events] == ["child"]
    assert recorder.close(10)
    assert [event["message_id"] for event in collector.events] == ["child", "parent"]
    assert len({sender for sender, _ in collector.taken}) == 2
    assert len(collector.polls) == 1


def run(collector: Collector, program: str) -> subprocess.CompletedProcess[str]:
    text = f"import sojourn\nrecorder = sojourn.Recorder({collector.url!r}, flush_interval=60)\n"
    text += textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)


def test_at_exit_the_last_events_are_sent(collector: Collector) -> None:
    done = run(collector, "recorder.enqueued('orders', 'last')")
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["message_id"] for event in collector.events] == ["last"]


def test_an_exit_with_an_exception_sends_them_too(collector: Collector) -> None:
    done = run(collector, "recorder.enqueued('orders', 'last')\nraise ValueError('of the application')")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert len(collector.events) == 1


def test_an_exit_does_not_wait_for_a_collector_that_hangs(collector: Collector) -> None:
    collector.script = [HANG] * 10
    started = time.monotonic()
    done = run(collector, "recorder.enqueued('orders', 'last')")
    assert done.returncode == 0
    assert "1 events were not sent" in done.stderr
    assert time.monotonic() - started < 25


def test_the_client_needs_the_standard_library_alone(collector: Collector) -> None:
    done = run(
        collector,
        """
        import sys
        import sojourn.client.recorder
        names = {name.partition(".")[0] for name in sys.modules if not name.startswith("__")}
        print(sorted(names - set(sys.stdlib_module_names) - {"sojourn", "sitecustomize", "usercustomize"}))
        recorder.close()
        """,
    )
    known = [name for name in json.loads(done.stdout.replace("'", '"')) if not name.startswith("_")]
    assert known == []


@pytest.mark.parametrize(
    "options", [{"url": "ftp://x"}, {"capacity": 10}, {"flush_interval": 0}, {"export": "carrier pigeon"}], ids=str
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        sojourn.Recorder(**{"url": NOWHERE, **options})


def test_an_application_without_a_collector_works_and_is_warned_once(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    recorder = sojourn.Recorder(NOWHERE, flush_interval=0.01)
    recorder.enqueued("orders", "m")
    eventually(lambda: recorder.stats().failures >= 3)
    assert caplog.text.count("cannot be reached") == 1
    assert not recorder.close(0.1)
