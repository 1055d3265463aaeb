"""``sojourn.Limits``: obeys what is in force, and never stands in the application's way otherwise."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import sojourn
from sojourn.client.bucket import PASS, Bucket
from sojourn.client.wire import MAX_BYTES, MalformedAnswer, WireLimit, parse
from tests.client.places import NOWHERE
from tests.support.moved_clock import Clock
from tests.support.waiting import PATIENCE

Eventually = Callable[..., None]


def limit(
    rate: float, *, burst: float = 1, lease: float = 60, tenant: str = "noisy", broker: str = "nats"
) -> WireLimit:
    return WireLimit(broker, "orders", tenant, rate, burst, lease, "why")


def test_without_a_limit_everything_passes_and_nothing_is_made(limits: sojourn.Limits) -> None:
    assert limits.acquire("orders", "acme") is PASS
    assert limits.try_acquire("orders", "acme") is PASS
    assert limits.acquire("orders", "acme", timeout=0)


def test_no_more_pass_than_burst_and_rate_allow(limits: sojourn.Limits, clock: Clock) -> None:
    limits.update([limit(10, burst=5, lease=1e6)])
    sent = 0
    for _ in range(10_000):  # 100 s in steps of 10 ms
        sent += bool(limits.try_acquire("orders", "noisy"))
        clock.now += 0.01
    assert sent in (1003, 1004, 1005)
    assert limits.counters()["granted"] == sent
    assert limits.counters()["refused"] == 10_000 - sent


def test_only_the_tenant_and_queue_of_a_limit_are_held_back(limits: sojourn.Limits) -> None:
    limits.update([limit(0.001)])
    assert limits.try_acquire("orders", "noisy")
    refused = limits.try_acquire("orders", "noisy")
    assert not refused and refused.limited and refused.retry_after_seconds > 0 and refused.reason == "why"
    assert limits.try_acquire("orders", "quiet") is PASS
    assert limits.try_acquire("invoices", "noisy") is PASS


def test_a_lease_that_ends_ends_the_limit(limits: sojourn.Limits, clock: Clock) -> None:
    limits.update([limit(0.001, lease=15)])
    assert limits.try_acquire("orders", "noisy")
    assert limits.in_force() == {("orders", "noisy"): 0.001}
    assert not limits.try_acquire("orders", "noisy")
    clock.now += 15
    assert all(limits.acquire("orders", "noisy") for _ in range(100))
    assert limits.in_force() == {}
    assert limits.counters()["expired"] == 100


def test_a_renewal_gives_no_fresh_burst(limits: sojourn.Limits) -> None:
    limits.update([limit(1, burst=10)])
    assert sum(bool(limits.try_acquire("orders", "noisy")) for _ in range(50)) == 10
    limits.update([limit(2, burst=10)])
    assert not limits.try_acquire("orders", "noisy")


def test_the_stricter_of_two_limits_counts_and_other_brokers_do_not(clock: Clock) -> None:
    with sojourn.Limits(NOWHERE, broker="nats", clock=clock) as limits:
        limits.update([limit(5), limit(2), limit(1, broker="kafka")])
        assert limits.in_force() == {("orders", "noisy"): 2}


def test_several_processes_share_a_tenants_rate(clock: Clock) -> None:
    with sojourn.Limits(NOWHERE, share=0.25, clock=clock) as limits:
        limits.update([limit(8)])
        assert limits.in_force() == {("orders", "noisy"): 2}
    with pytest.raises(ValueError, match="share"):
        sojourn.Limits(NOWHERE, share=0)


def test_blocking_waits_its_turn_and_gives_up_after_its_timeout(
    limits: sojourn.Limits, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float, _news: int) -> None:
        pauses.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(limits, "_pause", pause)
    limits.update([limit(2)])
    assert limits.acquire("orders", "noisy")
    decision = limits.acquire("orders", "noisy")
    assert decision and decision.waited_seconds == pytest.approx(0.5)
    refused = limits.acquire("orders", "noisy", timeout=0.2)
    assert not refused and refused.waited_seconds == pytest.approx(0.2)
    assert limits.acquire("orders", "noisy", timeout=5)
    assert sum(pauses) == pytest.approx(0.5 + 0.2 + 0.3)


def test_who_waits_goes_on_as_soon_as_the_limit_is_lifted_or_the_client_closed(limits: sojourn.Limits) -> None:
    for lift in (lambda: limits.update([]), limits.close):
        limits.update([limit(0.0001)])
        limits.try_acquire("orders", "noisy")
        answers: list[sojourn.Decision] = []
        waiting = threading.Thread(target=lambda: answers.append(limits.acquire("orders", "noisy")))  # noqa: B023
        waiting.start()
        time.sleep(0.02)
        lift()
        waiting.join(10)
        assert answers and answers[0]


async def test_asyncio_waiters_sleep_until_they_may_send_or_the_limits_change(
    limits: sojourn.Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []
    look = limits._try
    monkeypatch.setattr(limits, "_try", lambda *call: (looks.append(None), look(*call))[1])
    for lift in (lambda: limits.update([]), limits.close):
        limits.update([limit(0.0001)])
        limits.try_acquire("orders", "noisy")
        looks.clear()
        waiting = [asyncio.create_task(limits.wait("orders", "noisy")) for _ in range(3)]
        await asyncio.sleep(0.35)
        assert len(looks) == 3, "nobody asks again and again"
        threading.Thread(target=lift).start()
        for decision in await asyncio.wait_for(asyncio.gather(*waiting), 10 * PATIENCE):
            assert decision and not decision.limited
        assert len(looks) == 6


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_what_changes_between_a_refusal_and_the_wait_for_the_next_look_is_not_missed(
    limits: sojourn.Limits, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setattr("sojourn.client.limits.LOOK_AGAIN", 600.0)
    limits.update([limit(0.0001, lease=600)])
    limits.try_acquire("orders", "noisy")
    look, lift = limits._try, iter([lambda: limits.update([])])

    def refused_and_then_lifted(*call: Any) -> sojourn.Decision:
        decision = look(*call)
        next(lift, lambda: None)()
        return decision

    monkeypatch.setattr(limits, "_try", refused_and_then_lifted)
    if asynchronous:
        assert asyncio.run(asyncio.wait_for(limits.wait("orders", "noisy"), 10 * PATIENCE))
        return
    answers: list[sojourn.Decision] = []
    waiting = threading.Thread(target=lambda: answers.append(limits.acquire("orders", "noisy")), daemon=True)
    waiting.start()
    waiting.join(10 * PATIENCE)
    assert answers and answers[0]


async def test_asyncio_waits_without_holding_up_the_loop(limits: sojourn.Limits, clock: Clock) -> None:
    limits.update([limit(1)])
    assert await limits.wait("orders", "quiet") is PASS
    assert await limits.wait("orders", "noisy")
    assert not await limits.wait("orders", "noisy", timeout=0)
    task = asyncio.create_task(limits.wait("orders", "noisy"))
    await asyncio.sleep(0.01)
    assert not task.done()
    clock.now += 1
    assert await asyncio.wait_for(task, 10)


def test_threads_together_keep_the_rate(limits: sojourn.Limits) -> None:
    limits.update([limit(0.001, burst=100, lease=3000)])
    sent: list[bool] = []
    threads = [
        threading.Thread(target=lambda: sent.extend(bool(limits.try_acquire("orders", "noisy")) for _ in range(100)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(sent), sum(sent)) == (800, 100)


def test_a_change_arrives_by_long_poll_and_its_end_too(api: Any, eventually: Eventually) -> None:
    with sojourn.Limits(api.url, poll_seconds=20) as limits:
        eventually(lambda: limits.counters()["updates"] == 1)
        api.limit(3)
        eventually(lambda: limits.in_force() == {("orders", "noisy"): 3})
        api.board.publish(())
        eventually(lambda: limits.in_force() == {})
        assert limits.counters()["polls"] <= 4


def test_limits_outlast_a_restart_of_the_api_and_are_fetched_anew(api: Any, eventually: Eventually) -> None:
    api.limit(3)
    with sojourn.Limits(api.url, poll_seconds=0.1) as limits:
        eventually(lambda: limits.in_force() == {("orders", "noisy"): 3})
        api.stop()
        eventually(lambda: limits.counters()["unreachable"] >= 1)
        assert limits.in_force() == {("orders", "noisy"): 3}
        api.limit(4)
        api.start()
        eventually(lambda: limits.in_force() == {("orders", "noisy"): 4})


def test_an_api_that_stays_away_ends_the_limit_with_its_lease(api: Any, eventually: Eventually) -> None:
    api.limit(0.001, lease=0.6)
    with sojourn.Limits(api.url, poll_seconds=0.1) as limits:
        eventually(lambda: limits.counters()["updates"] == 1)
        api.stop()
        eventually(lambda: limits.in_force() == {})
        assert all(limits.acquire("orders", "noisy") for _ in range(10))


def test_the_token_is_sent(make_api: Callable[..., Any], eventually: Eventually) -> None:
    api = make_api(token="s3cret")
    api.limit(3)
    with sojourn.Limits(api.url, token="s3cret") as limits, sojourn.Limits(api.url, token="wrong") as stranger:
        eventually(lambda: limits.in_force() == {("orders", "noisy"): 3})
        eventually(lambda: stranger.counters()["unreachable"] >= 1)
        assert stranger.acquire("orders", "noisy") is PASS


GOOD = b"""{"version": 1, "generated_at": "2026-01-01T00:00:00+00:00", "limits": [{"broker": "nats", "queue": "orders",
 "tenant": "noisy", "rate": 2, "burst": 3, "valid_until": "2026-01-01T00:00:15+00:00", "reason": "r",
 "action_id": "a"}]}"""


def test_a_lease_counts_on_the_servers_clock_alone() -> None:
    (parsed,) = parse(GOOD).limits  # years away from this machine's clock
    assert parsed == WireLimit("nats", "orders", "noisy", 2.0, 3.0, 15.0, "r")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"limits": []}',
        b"[" * 100_000,
        GOOD.replace(b'"rate": 2', b'"rate": 0'),
        GOOD.replace(b'"rate": 2', b'"rate": NaN'),
        GOOD.replace(b'"rate": 2', b'"rate": 1e999'),
        GOOD.replace(b'"rate": 2', b'"rate": null'),
        GOOD.replace(b'"burst": 3', b'"burst": 0.5'),
        GOOD.replace(b'"tenant": "noisy"', b'"tenant": 7'),
        GOOD.replace(b"00:00:15+00:00", b"00:00:15"),
        GOOD.replace(b'"limits": [', b'"limits": ["x", '),
        b"\xff\xfe",
    ],
)
def test_a_malformed_answer_is_refused_whole(body: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse(body)


def test_no_lease_is_believed_for_longer_than_an_hour() -> None:
    (parsed,) = parse(GOOD.replace(b"2026-01-01T00:00:15", b"2999-01-01T00:00:00")).limits
    assert parsed.lease_seconds == 3600


@pytest.mark.parametrize(
    ("answer", "counter"),
    [
        ((200, {}, b"not json"), "malformed"),
        ((200, {}, b"x" * (MAX_BYTES + 1)), "malformed"),
        ((500, {}, b""), "unreachable"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "unreachable"),
        ((401, {}, b"{}"), "unreachable"),
    ],
)
def test_an_answer_of_no_use_changes_nothing_and_is_counted(
    answering: Callable[..., Any], eventually: Eventually, answer: tuple[int, dict[str, str], bytes], counter: str
) -> None:
    with answering((200, {"ETag": '"1"'}, GOOD), answer) as url, sojourn.Limits(url) as limits:
        eventually(lambda: limits.counters()[counter] >= 1)
        assert limits.in_force() == {("orders", "noisy"): 2}


def test_a_server_that_answers_at_once_is_not_hammered(answering: Callable[..., Any]) -> None:
    with answering((304, {"Retry-After": "30"}, b"")) as url, sojourn.Limits(url) as limits:
        time.sleep(0.3)
        assert limits.counters()["polls"] <= 2


def test_an_address_that_is_none_is_refused_at_once() -> None:
    for url in ("", "ftp://x", "http://", "127.0.0.1:80"):
        with pytest.raises(ValueError, match="address"):
            sojourn.Limits(url)


def test_closing_does_not_wait_for_the_poll_and_ends_its_thread(api: Any, eventually: Eventually) -> None:
    limits = sojourn.Limits(api.url, poll_seconds=20)
    eventually(lambda: limits.counters()["updates"] == 1)
    limits.close()
    limits.close()
    eventually(lambda: not any(thread.name == "sojourn-limits" for thread in threading.enumerate()))
    assert limits.acquire("orders", "noisy") is PASS


def test_a_forgotten_client_is_collected() -> None:
    limits = sojourn.Limits(NOWHERE)
    reference = weakref.ref(limits)
    del limits
    deadline = time.monotonic() + PATIENCE * 10
    while reference() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert reference() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_worker_polls_for_itself(api: Any) -> None:
    code = f"""
import os, sys, time, sojourn
limits = sojourn.Limits({api.url!r}, poll_seconds=0.2)
while not limits.counters()["updates"]: time.sleep(0.01)
child = os.fork()
if child == 0:
    deadline = time.monotonic() + 40
    while not limits.counters()["updates"] and time.monotonic() < deadline: time.sleep(0.01)
    os._exit(0 if limits.in_force() == {{("orders", "noisy"): 3}} else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    api.limit(3)
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_worker_does_not_wait_for_what_a_thread_of_its_parent_holds() -> None:
    code = f"""
import os, signal, sys, threading, sojourn
from sojourn.client.wire import Update, WireCongestion, WireEntitlement, WireLimit
limits = sojourn.Limits({NOWHERE!r})
of_limit = [WireLimit("nats", "orders", "noisy", 1e-9, 1, 60, "")]
entitled = [WireEntitlement("nats", "orders", "*", 1e-9, 1)]
congested = [WireCongestion("nats", "orders", 60, "")]
limits.apply(Update(None, whole=True, limits=of_limit, entitled=entitled, congested=congested))
names = "noisy", "acme"
assert all(limits.try_acquire("orders", name) for name in names)
for bucket in limits._buckets["orders", "noisy"], limits._congested["orders"][0].buckets["acme"]:
    bucket._tally.lock.acquire(blocking=False)
child = os.fork()
if child == 0:
    signal.alarm(20)
    refused = not any(limits.try_acquire("orders", name) for name in names)
    os._exit(0 if refused and limits.counters()["refused"] == 2 and not limits.counters()["granted"] else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


def test_importing_the_client_imports_the_standard_library_alone() -> None:
    code = """
import sys, sojourn
sojourn.Limits
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"sojourn", "__main__"}
print(sorted(name for name in foreign if not name.startswith(("_", "sitecustomize"))))
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


def test_a_bucket_that_never_expires_keeps_its_tokens_when_the_clock_goes_back() -> None:
    bucket = Bucket(1, 2, math.inf, now=100)
    assert bucket.take(100) == 0 and bucket.take(50) == 0
    assert bucket.take(50) == pytest.approx(1)


def test_a_groups_limit_is_shared_by_all_whose_names_begin_so(limits: sojourn.Limits, clock: Clock) -> None:
    limits.update([limit(10, burst=10, tenant="acme-*"), limit(2, tenant="acme-own")])
    assert limits.in_force() == {("orders", "acme-*"): 10, ("orders", "acme-own"): 2}
    assert limits.congested() == {}
    sent = 0
    for step in range(1000):  # 10 s, turn by turn
        sent += bool(limits.try_acquire("orders", f"acme-{step % 7}"))
        clock.now += 0.01
    assert 98 <= sent <= 102, "ten a second for all of them together"
    assert limits.try_acquire("orders", "other") is not None and limits.try_acquire("orders", "other")
    assert limits.try_acquire("bills", "acme-1") is PASS
    before = sum(bool(limits.try_acquire("orders", "acme-own")) for _ in range(10))
    assert before == 1, "its own counts first"
    limits.update([limit(10, burst=10, tenant="acme-*", lease=60)])
    assert not all(limits.try_acquire("orders", "acme-1") for _ in range(12)), "a renewal gives no fresh burst"
    clock.now += 61
    assert limits.in_force() == {} and all(limits.try_acquire("orders", "acme-1") for _ in range(50))
    limits.update([])
    assert limits.try_acquire("orders", "acme-1") is PASS


def test_a_groups_limit_comes_by_the_api_and_is_lifted_by_it(api: Any, eventually: Eventually) -> None:
    with sojourn.Limits(api.url) as limits:
        api.limit(3, tenant="acme-*")
        eventually(lambda: limits.in_force() == {("orders", "acme-*"): 3})
        assert limits.try_acquire("orders", "acme-1") and not limits.try_acquire("orders", "acme-2")
        api.board.publish(())
        eventually(lambda: limits.in_force() == {})
        assert limits.try_acquire("orders", "acme-2") is PASS
