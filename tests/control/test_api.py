"""The limits API over real HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

Start = Callable[..., Any]
Serve = Callable[..., Any]


@pytest.fixture
def loop(start: Start) -> Any:
    """A loop whose world is at the wall clock, as the API is; its leases outlast a slow machine."""
    loop = start(lease_seconds=600)
    loop.world.now = datetime.now(UTC)
    return loop


def test_a_limit_in_force_is_served_in_the_wire_format_and_a_known_one_is_304(loop: Any, serve: Serve) -> None:
    loop.throttle("t0")
    with serve(loop.control) as url, httpx.Client(base_url=url) as http:
        answer = http.get("/v1/limits")
        body = answer.json()
        assert answer.headers["etag"] == f'"{body["version"]}"'
        (limit,) = body["limits"]
        assert set(limit) == {"broker", "queue", "tenant", "rate", "burst", "valid_until", "reason", "action_id"}
        assert (limit["tenant"], limit["rate"], limit["burst"]) == ("t0", 10.0, 10.0)
        assert datetime.fromisoformat(limit["valid_until"]) > datetime.fromisoformat(body["generated_at"])
        same = http.get("/v1/limits", headers={"If-None-Match": answer.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")


def test_a_long_poll_is_answered_when_something_changes(loop: Any, serve: Serve) -> None:
    with serve(loop.control) as url, httpx.Client(base_url=url, timeout=20) as http:
        etag = http.get("/v1/limits").headers["etag"]
        later = threading.Timer(0.2, loop.throttle, ("t0",))
        later.start()
        answer = http.get("/v1/limits?wait=15", headers={"If-None-Match": etag})
        later.join()
        assert [limit["tenant"] for limit in answer.json()["limits"]] == ["t0"]


def test_a_long_poll_without_change_ends_in_304(loop: Any, serve: Serve) -> None:
    with serve(loop.control) as url, httpx.Client(base_url=url) as http:
        etag = http.get("/v1/limits").headers["etag"]
        assert http.get("/v1/limits?wait=0.05", headers={"If-None-Match": etag}).status_code == 304


def test_a_limit_whose_lease_has_ended_is_not_served_even_if_nobody_steps(loop: Any, serve: Serve) -> None:
    loop.throttle("t0")
    assert loop.control.board.snapshot.limits
    loop.world.advance(601)
    with serve(loop.control) as url:
        assert httpx.get(f"{url}/v1/limits").json()["limits"] == []


def test_more_pollers_than_max_waiters_are_answered_at_once_and_asked_to_wait(start: Start, serve: Serve) -> None:
    loop = start(max_waiters=1)
    with serve(loop.control) as url, httpx.Client(base_url=url, timeout=20) as http:
        etag = {"If-None-Match": http.get("/v1/limits").headers["etag"]}
        waiting = threading.Thread(
            target=httpx.get, args=(f"{url}/v1/limits?wait=20",), kwargs={"headers": etag, "timeout": 30}
        )
        waiting.start()
        while not loop.control.board.waiting:
            time.sleep(0.005)
        answer = http.get("/v1/limits?wait=20", headers=etag)
        assert (answer.status_code, answer.headers["retry-after"]) == (304, "2")
        loop.control.wake()
        waiting.join(10)
        assert not waiting.is_alive()


def test_operators_list_revoke_pause_and_resume(loop: Any, serve: Serve) -> None:
    loop.throttle("t0")
    with serve(loop.control) as url, httpx.Client(base_url=url) as http:
        listed = http.get("/v1/actions").json()
        assert (listed["paused"], listed["actions"][0]["decision"]) == (False, "throttle")
        action_id = listed["actions"][0]["action_id"]
        assert http.post(f"/v1/actions/{action_id}/revoke").json() == {"action_id": action_id, "revoked": True}
        assert http.get("/v1/limits").json()["limits"] == []
        assert http.post(f"/v1/actions/{action_id}/revoke").status_code == 404
        assert http.post("/v1/pause").json() == {"paused": True}
        assert http.get("/v1/actions?limit=1").json()["paused"] is True
        assert http.post("/v1/resume").json() == {"paused": False}
        assert http.get("/v1/pause").status_code == 405


def test_with_a_token_every_request_needs_it(start: Start, serve: Serve) -> None:
    loop = start(token="s3cret")
    with serve(loop.control) as url, httpx.Client(base_url=url) as http:
        for bad in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic s3cret"},
            {"Authorization": "Bearer é"},
        ):
            raw = {name: value.encode("latin-1") for name, value in bad.items()}
            assert http.get("/v1/limits", headers=raw).status_code == 401
            assert http.post("/v1/pause", headers=raw).status_code == 401
        good = {"Authorization": "Bearer s3cret"}
        assert http.get("/v1/limits", headers=good).status_code == 200
        assert http.post("/v1/pause", headers=good).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "[::1"}, 400),
        ({"Host": "a b"}, 400),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[evil"}, 400),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_web_page_can_neither_pull_the_kill_switch_nor_read(
    loop: Any, serve: Serve, headers: dict[str, str], status: int
) -> None:
    with serve(loop.control) as url:
        assert httpx.post(f"{url}/v1/pause", headers=headers).status_code == status
        assert httpx.get(f"{url}/v1/limits", headers=headers).status_code == status
    assert not loop.control.controller.paused


@pytest.mark.parametrize("query", ["wait=nan", "wait=-1", "wait=x", "wait="])
def test_a_wait_that_makes_no_sense_is_no_wait(loop: Any, serve: Serve, query: str) -> None:
    with serve(loop.control) as url, httpx.Client(base_url=url) as http:
        etag = http.get("/v1/limits").headers["etag"]
        assert http.get(f"/v1/limits?{query}", headers={"If-None-Match": etag}).status_code == 304
