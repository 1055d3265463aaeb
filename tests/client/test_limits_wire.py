"""What the limits API and its client say to each other: changes alone, of some queues alone, to who still listens."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import sojourn
from alerts.control.answers import EVERYTHING, Answers, Selector
from alerts.control.board import Board, Congestion, Entitlement, ServedLimit
from sojourn.client.wire import MAX_BYTES, MalformedAnswer, Update, WireCongestion, WireEntitlement, WireLimit, parse
from tests.client.places import NOWHERE
from tests.support.moved_clock import Clock

Eventually = Callable[..., None]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def served(
    tenant: str, rate: float = 3.0, queue: str = "orders", broker: str = "nats", lease: float = 60
) -> ServedLimit:
    until = datetime.now(UTC) + timedelta(seconds=lease)
    return ServedLimit(broker, queue, tenant, rate, 1.0, until, f"why {tenant}", f"action of {tenant}")


def get(url: str, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body) if body else {}


def test_only_what_changed_since_the_clients_version_is_answered(api: Any) -> None:
    api.board.publish([served("a"), served("b")])
    _, whole = get(api.url, "/v1/limits?since=0")
    assert whole["since"] is None and [row[0] for row in whole["queues"][0]["limits"]] == ["a", "b"]
    api.board.publish([served("b", 7)])
    _, part = get(api.url, f"/v1/limits?since={whole['version']}")
    (queue,) = part["queues"]
    assert part["since"] == whole["version"]
    assert ([row[:2] for row in queue["limits"]], queue["lifted"]) == ([["b", 7.0]], ["a"])
    status, _ = get(api.url, f"/v1/limits?since={part['version']}")
    assert status == 304
    for nonsense in ("-1", "x", "9" * 30, str(part["version"] + 10**9), "%00"):
        assert get(api.url, f"/v1/limits?since={nonsense}")[1]["since"] is None


def test_limits_are_answered_by_broker_and_queue(api: Any) -> None:
    api.board.publish(
        [served("a"), served("b", queue="bills"), served("c", broker="kafka"), served("d", queue="a/b&c=ä")]
    )

    def tenants(query: str) -> list[str]:
        plain = [limit["tenant"] for limit in get(api.url, f"/v1/limits?{query}")[1]["limits"]]
        queues = get(api.url, f"/v1/limits?since=0&{query}")[1]["queues"]
        assert sorted(row[0] for queue in queues for row in queue["limits"]) == sorted(plain)
        return sorted(plain)

    assert tenants("") == ["a", "b", "c", "d"]
    assert tenants("broker=nats&queue=orders") == ["a"]
    assert tenants("queue=orders&queue=bills") == ["a", "b", "c"]
    assert tenants("queue=a/b%26c%3D%C3%A4") == ["d"]
    assert tenants("queue=none") == []


def test_a_poll_for_one_queue_is_not_woken_by_another(api: Any, eventually: Eventually) -> None:
    with sojourn.Limits(api.url, poll_seconds=30, queues=["orders"]) as client:
        eventually(lambda: client.counters()["updates"] == 1)
        eventually(lambda: api.board.waiting == 1)
        for rate in range(1, 6):
            api.board.publish([served("x", rate, queue="bills")])
        api.board.publish([served("x", 9, queue="bills"), served("a")])
        eventually(lambda: client.in_force() == {("orders", "a"): 3})
        assert client.counters()["updates"] == 2


def test_queues_too_many_to_name_are_chosen_by_the_client(api: Any, eventually: Eventually) -> None:
    api.board.publish([served("a"), served("b", queue="bills")])
    with sojourn.Limits(api.url, queues=["orders", *(f"queue-{i}" for i in range(2000))]) as client:
        eventually(lambda: client.in_force() == {("orders", "a"): 3})


def test_a_closed_connection_makes_room_for_others_at_once(
    make_api: Callable[..., Any], eventually: Eventually
) -> None:
    api = make_api(max_waiters=1)
    version = api.board.snapshot.version
    address = api.url.removeprefix("http://").split(":")
    for _ in range(5):
        with socket.create_connection((address[0], int(address[1]))) as one:
            one.sendall(f"GET /v1/limits?wait=30&since={version} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            eventually(lambda: api.board.waiting == 1)
        eventually(lambda: api.board.waiting == 0)


def test_an_answer_is_rendered_once_however_many_ask() -> None:
    board = Board()
    answers = Answers(board)
    board.publish([served(f"t{i}") for i in range(100)])
    for _ in range(1000):
        answers.compact(EVERYTHING, 0, NOW, 0.0)
        answers.plain(EVERYTHING, NOW, timedelta(0), 0.0)
    assert answers.rendered == 2
    board.publish([served("t0")])
    _, body = answers.compact(EVERYTHING, 0, NOW, 0.0)
    assert answers.rendered == 3 and len(parse(body, 0).limits) == 1


def test_a_client_that_follows_changes_knows_what_one_knows_that_asks_for_all(clock: Clock) -> None:
    """Whatever is published, and however seldom somebody looks."""
    randomly = random.Random(14)
    for _ in range(60):
        board = Board()
        answers = Answers(board)
        selector = randomly.choice([EVERYTHING, Selector(queues=frozenset({"q0"})), Selector(frozenset({"b1"}))])
        follower, version = sojourn.Limits(NOWHERE, clock=clock), 0
        state: dict[tuple[str, str, str], ServedLimit] = {}
        for _ in range(randomly.randrange(1, 12)):
            for _ in range(randomly.randrange(4)):
                scope = (f"b{randomly.randrange(2)}", f"q{randomly.randrange(2)}", f"t{randomly.randrange(3)}")
                state.pop(scope, None)
                if randomly.random() < 0.7:
                    until = NOW + timedelta(seconds=randomly.randrange(5, 90))
                    state[scope] = ServedLimit(*scope, randomly.randrange(1, 9), 1.0, until, "r", "a")
            board.publish(state.values())
            if randomly.random() < 0.6:
                version, body = answers.compact(selector, version, NOW, 0.0)
                follower.apply(parse(body, version if json.loads(body)["since"] is None else json.loads(body)["since"]))
        version, body = answers.compact(selector, version, NOW, 0.0)
        follower.apply(parse(body, json.loads(body)["since"]))
        anew = sojourn.Limits(NOWHERE, clock=clock)
        anew.apply(parse(answers.compact(selector, 0, NOW, 0.0)[1], 0))
        assert follower.in_force() == anew.in_force()
        follower.close()
        anew.close()


def test_versions_that_are_forgotten_are_answered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.control.board.MOST_CHANGES", 3)
    board = Board()
    seen = [board.snapshot.version]
    for rate in range(1, 6):
        board.publish([served("a", rate)])
        seen.append(board.snapshot.version)
    assert [board.since(version) is None for version in seen] == [True, True, False, False, False, False]
    newest = board.since(seen[-1])
    assert newest is not None and not newest.items and not newest.gone


def test_a_hundred_thousand_limits_reach_a_client(api: Any, eventually: Eventually) -> None:
    until = datetime.now(UTC) + timedelta(seconds=600)
    reason = "quiet tenants wait 12 s; sends 120/s; limited to 10/s towards 10/s, its share of 80/s"
    api.board.publish(
        ServedLimit("nats", f"queue-{i % 100}", f"tenant-{i}", 1.0 + i, 5.0, until, f"{reason} ({i})", f"action-{i}")
        for i in range(100_000)
    )
    with sojourn.Limits(api.url, queues=["queue-7"]) as one, sojourn.Limits(api.url) as all_of_them:
        eventually(lambda: one.counters()["updates"] and all_of_them.counters()["updates"])
        assert (len(one.in_force()), len(all_of_them.in_force())) == (1_000, 100_000)
        assert all_of_them.in_force()["queue-99", "tenant-99999"] == 100_000
        assert all_of_them.counters()["malformed"] == 0


def test_the_answer_to_a_hundred_thousand_limits_would_leave_room_below_the_clients_bound() -> None:
    board = Board()
    board.publish(
        ServedLimit("nats", f"queue-{i % 100}", f"tenant-{i:0>40}", 1 / 3, 1 / 3, NOW, f"{'why ' * 30}{i}", "a" * 16)
        for i in range(10_000)
    )
    assert 10 * len(Answers(board).compact(EVERYTHING, 0, NOW, 0.0)[1]) < MAX_BYTES / 2


def test_a_lease_counts_from_when_the_server_said_it_however_late_it_is_read(
    limits: sojourn.Limits, clock: Clock
) -> None:
    update = Update(1, True, limits=[WireLimit("nats", "orders", "noisy", 0.001, 1, 15, "why")])
    limits.apply(update, said_at=clock.now - 14)
    assert limits.in_force() == {("orders", "noisy"): 0.001}
    clock.now += 1
    assert limits.in_force() == {}
    limits.apply(update, said_at=clock.now - 3600)  # it lay in a buffer while this machine slept
    assert limits.in_force() == {}
    limits.apply(update, said_at=clock.now + 3600)
    clock.now += 15
    assert limits.in_force() == {}, "nothing is said in the future"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system stops no process")
def test_a_process_that_stood_still_believes_no_lease_for_longer(api: Any, eventually: Eventually) -> None:
    """The answer waits in the socket's buffer until the lease is over."""
    code = f"""
import sys, time, sojourn
limits = sojourn.Limits({api.url!r}, poll_seconds=30)
while not limits.counters()["updates"]: time.sleep(0.005)
print("ready", flush=True)
while limits.counters()["updates"] < 2: time.sleep(0.005)
print(limits.in_force(), flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    eventually(lambda: api.board.waiting == 1)
    os.kill(child.pid, signal.SIGSTOP)
    api.board.publish([served("noisy", lease=1.0)])
    eventually(lambda: api.board.waiting == 0)
    time.sleep(1.2)
    os.kill(child.pid, signal.SIGCONT)
    assert child.stdout.readline() == "{}\n"
    assert child.wait(60) == 0


def test_entitlements_bind_only_while_their_queue_is_congested(limits: sojourn.Limits, clock: Clock) -> None:
    entitled = [WireEntitlement("nats", "orders", "big", 10, 2), WireEntitlement("nats", "orders", "*", 1, 1)]
    limits.apply(Update(1, True, entitled=entitled))
    assert all(limits.try_acquire("orders", "big") for _ in range(100)), "no congestion, no limit"
    limits.apply(Update(2, False, congested=[WireCongestion("nats", "orders", 5, "8 s behind")]))
    assert limits.congested() == {"orders": "8 s behind"}
    for tenant, passed in (("big", 1), ("small", 1), ("other", 1)):  # one at once: a flood had its burst before
        assert [bool(limits.try_acquire("orders", tenant)) for _ in range(3)].count(True) == passed
    assert all(limits.try_acquire("bills", "big") for _ in range(10))
    clock.now += 1
    assert sum(bool(limits.try_acquire("orders", "big")) for _ in range(50)) == 2, "its burst"
    limits.apply(Update(3, False, congested=[WireCongestion("nats", "orders", 5, "9 s behind")]))
    assert not limits.try_acquire("orders", "big"), "a renewal gives no fresh burst"
    clock.now += 5
    assert all(limits.try_acquire("orders", "big") for _ in range(100)), "the bit has a lease"
    limits.apply(Update(4, False, congested=[WireCongestion("nats", "orders", 5, "again")]))
    limits.apply(Update(5, False, congested=[WireCongestion("nats", "orders", -1, "")]))
    assert limits.congested() == {} and all(limits.try_acquire("orders", "big") for _ in range(100))


def test_a_limit_counts_before_an_entitlement_and_the_entitlement_once_it_ends(
    limits: sojourn.Limits, clock: Clock
) -> None:
    limits.apply(
        Update(
            1,
            True,
            limits=[WireLimit("nats", "orders", "big", 5, 5, 2, "noisy")],
            entitled=[WireEntitlement("nats", "orders", "big", 100, 100)],
            congested=[WireCongestion("nats", "orders", 60, "behind")],
        )
    )
    decisions = [limits.try_acquire("orders", "big") for _ in range(6)]
    assert decisions.count(decisions[0]) <= 6 and sum(map(bool, decisions)) == 5 and decisions[0].reason == "noisy"
    clock.now += 2
    decision = limits.try_acquire("orders", "big")
    assert decision and decision.reason == "behind"


def test_strangers_without_number_cost_bounded_memory(limits: sojourn.Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.client.in_force.MOST_STRANGERS", 10)
    limits.apply(
        Update(
            1,
            True,
            entitled=[WireEntitlement("nats", "orders", "*", 1, 1)],
            congested=[WireCongestion("nats", "orders", 60, "behind")],
        )
    )
    assert sum(bool(limits.try_acquire("orders", f"stranger-{i}")) for i in range(1000)) == 11


def test_congestion_and_entitlements_travel(api: Any, eventually: Eventually) -> None:
    with sojourn.Limits(api.url, poll_seconds=20) as client:
        eventually(lambda: client.counters()["updates"] == 1)
        api.board.publish_entitlements([Entitlement("nats", "orders", "*", 0.001, 1)])
        until = datetime.now(UTC) + timedelta(seconds=60)
        api.board.publish_congestion([Congestion("nats", "orders", until, "behind")])
        eventually(lambda: client.congested() == {"orders": "behind"})
        assert client.try_acquire("orders", "a") and not client.try_acquire("orders", "a")
        api.board.publish_congestion([])
        eventually(lambda: client.congested() == {})
        assert client.try_acquire("orders", "a")


COMPACT = {
    "version": 7, "now": 1000.0, "waited_seconds": 0.0, "since": None, "reasons": ["r"],
    "queues": [{
        "broker": "nats", "queue": "orders", "limits": [["noisy", 2, 3, 1015.0, 0]], "entitled": [["*", 1, 1]],
        "congested": [1005.0, "behind"],
    }],
}  # fmt: skip


def test_the_compact_form_is_understood() -> None:
    update = parse(json.dumps(COMPACT).encode(), 3)
    assert update.limits == [WireLimit("nats", "orders", "noisy", 2.0, 3.0, 15.0, "r")]
    assert (update.version, update.whole, update.waited_seconds) == (7, True, 0.0)
    assert update.congested == [WireCongestion("nats", "orders", 5.0, "behind")]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["version"], "7"),
        (["version"], None),
        (["now"], None),
        (["since"], 4),
        (["queues"], 3),
        (["queues"], ["x"]),
        (["queues", 0, "broker"], 1),
        (["queues", 0, "limits"], [["noisy", 0, 3, 1015, 0]]),
        (["queues", 0, "limits"], [["noisy", 1, 0.5, 1015, 0]]),
        (["queues", 0, "limits"], [["noisy", 1, 1, 1015, 9]]),
        (["queues", 0, "limits"], [["noisy", 1, 1, 1015]]),
        (["queues", 0, "limits"], [[5, 1, 1, 1015, 0]]),
        (["queues", 0, "limits"], [["noisy", 1, 1, "soon", 0]]),
        (["queues", 0, "entitled"], [["*", -1, 1]]),
        (["queues", 0, "lifted"], [1]),
        (["queues", 0, "congested"], ["x", "y"]),
    ],
)
def test_a_malformed_compact_answer_is_refused_whole(path: list[Any], value: Any) -> None:
    document = json.loads(json.dumps(COMPACT))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(MalformedAnswer):
        parse(json.dumps(document).encode(), 3)


def test_the_tenants_of_a_declared_group_have_one_entitlement_together(limits: sojourn.Limits, clock: Clock) -> None:
    entitled = [
        WireEntitlement("nats", "orders", "acme-*", 10, 2),
        WireEntitlement("nats", "orders", "acme-eu-*", 1, 1),
        WireEntitlement("nats", "orders", "*", 10, 2),
    ]
    limits.apply(Update(1, True, entitled=entitled, congested=[WireCongestion("nats", "orders", 60, "")]))
    assert [bool(limits.try_acquire("orders", f"acme-{n}")) for n in range(4)].count(True) == 1
    assert limits.try_acquire("orders", "acme-eu-1") and limits.try_acquire("orders", "other")
    clock.now += 0.5
    limits.apply(Update(2, False, congested=[WireCongestion("nats", "orders", 60, "")]))
    assert [bool(limits.try_acquire("orders", f"acme-{n}")) for n in range(4)].count(True) == 2, "a burst for all"
