"""Policies that act through other servers: what holds there, what the journal says, and what a bad server costs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actuators.undo_log import UndoLog
from alerts.control.settings import ControlSettings
from sojourn.cli import main
from tests.collectors.support import make_queue
from tests.support.nats import NatsServer
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

Start = Callable[..., Any]
KEY = "sojourn:limit:nats:orders:t0"


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    with redis_server.client(decode_responses=True) as client:
        client.flushall()
        yield client


def in_redis(server: RedisServer, **changes: Any) -> dict[str, Any]:
    return {
        "actuators": [{"kind": "redis_key", "name": "mirror", "url": server.url, **changes}],
        "actuator": "mirror",
        "lease_seconds": 600,
    }


def inputs(row: dict[str, Any]) -> dict[str, str]:
    return dict(row["inputs"])


def test_a_policy_holds_through_the_actuator_that_it_names_and_the_journal_has_its_effect(
    start: Start, redis_server: RedisServer, client: Any
) -> None:
    loop = start(**in_redis(redis_server))
    loop.throttle("t0")
    assert json.loads(client.get(KEY))["rate"] == 10.0
    assert 500 < client.ttl(KEY) <= 600
    assert loop.served() == {}, "the limits API has what is for it alone"
    (row,) = loop.journal()
    told = inputs(row)
    assert (row["outcome"], row["actuator"], told["setting"]) == ("applied", "mirror", KEY)
    assert told["setting_before"] == "nothing" and '"rate": 10.0' in told["setting_after"]
    loop.world.advance(1)
    loop.control.controller.revoke(row["action_id"], loop.world.now)
    assert client.get(KEY) is None
    assert inputs(_last(loop))["effect"] == "nothing stands again"


def test_arrivals_that_do_not_follow_a_limit_of_the_consumers_are_no_want_of_effect(
    start: Start, tmp_path: Path
) -> None:
    with NatsServer(tmp_path / "nats") as server:
        make_queue(server.url, "orders", "of-t0", filter_subject="orders.t0")
        slow = {"kind": "nats_max_ack_pending", "name": "slow", "url": server.url, "consumer": "of-{tenant}"}
        loop = start(actuators=[slow | {"service_seconds": 1.0}], actuator="slow", lease_seconds=600)
        loop.throttle("t0")
        loop.run(20, "t0")  # arrivals stay at 120/s
        assert loop.journal()[0]["outcome"] == "applied" and inputs(loop.journal()[0])["slows"] == "consumers"
        assert [row["reason"] for row in loop.journal() if row["outcome"] == "failed"] == []
        loop.control.controller.pause(loop.world.now)  # else the reaper would wait for a server that is gone
        wait_until(lambda: not loop.control.undo_log.held(), "it to be put back")


def _last(loop: Any) -> dict[str, Any]:
    loop.control.controller._journal.flush()
    return dict(loop.journal()[-1])


def test_a_dry_run_touches_no_server(start: Start, redis_server: RedisServer, client: Any) -> None:
    loop = start(**in_redis(redis_server), dry_run=True)
    loop.throttle("t0")
    assert loop.decisions() == ["throttle"] and client.keys() == []


def test_a_limit_that_is_approved_is_put_in_force_there(start: Start, redis_server: RedisServer, client: Any) -> None:
    loop = start(**in_redis(redis_server), dry_run=None, mode="approve")
    loop.throttle("t0")
    (found,) = loop.control.controller.active_limits.values()
    assert client.keys() == []
    assert loop.control.controller.approve(found.action_id, loop.world.now)
    assert client.get(KEY) is not None


def test_what_a_server_refuses_is_journaled_once_and_nothing_is_in_force(
    start: Start, redis_server: RedisServer, client: Any, tmp_path: Path
) -> None:
    client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+get", "+select")
    (tmp_path / "any").write_text("any")
    loop = start(**in_redis(redis_server, user="reader", password={"file": str(tmp_path / "any")}))
    loop.throttle("t0")
    loop.run(3, "t0")
    (row,) = loop.journal()
    assert row["outcome"] == "failed" and "NOPERM" in row["reason"]
    assert loop.control.controller.active_limits == {}


def test_what_somebody_else_sets_meanwhile_stays_and_the_journal_says_so(
    start: Start, redis_server: RedisServer, client: Any
) -> None:
    loop = start(**in_redis(redis_server))
    loop.throttle("t0")
    client.set(KEY, "mine")
    loop.world.advance(1)
    loop.control.controller.pause(loop.world.now)
    assert client.get(KEY) == "mine"
    row = _last(loop)
    assert row["decision"] == "revoke" and "somebody else has set it to mine" in inputs(row)["effect"]


def test_of_a_limit_that_somebody_else_has_overwritten_nobody_says_that_producers_ignore_it(
    start: Start, redis_server: RedisServer, client: Any
) -> None:
    loop = start(**in_redis(redis_server) | {"lease_seconds": 15})
    loop.throttle("t0")
    client.set(KEY, "mine")
    loop.run(20, "t0")
    told = [row for row in loop.journal() if row["action_id"] == loop.journal()[0]["action_id"]]
    assert not [row for row in told if row["reason"].startswith("no effect")]
    told = [(row["decision"], row["outcome"]) for row in told]
    assert told == [("throttle", "applied"), ("hold", "failed"), ("expire", "applied")]
    assert "could not be renewed: refused: " in next(
        row["reason"] for row in loop.journal() if row["decision"] == "expire"
    )


def test_after_a_restart_the_limit_holds_on_and_ends_with_what_ends_it(
    start: Start, redis_server: RedisServer, client: Any
) -> None:
    loop = start(**in_redis(redis_server))
    loop.throttle("t0")
    loop.control.close()
    again = start(**in_redis(redis_server))
    assert json.loads(client.get(KEY))["rate"] == 10.0
    again.control.controller.pause(again.world.now)
    wait_until(lambda: client.get(KEY) is None, "the key to go")


def test_commands_show_an_action_whole_and_what_is_held(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = start(actuators=[{"kind": "file", "name": "paper", "path": str(tmp_path / "limits.json")}], actuator="paper")
    loop.throttle("t0")
    (row,) = loop.journal()
    root = tmp_path / "lake"
    (root / "state").mkdir()
    (root / "state" / "control").symlink_to(tmp_path / "state")
    assert main.run(["actions", "show", row["action_id"], "--lake", str(root)]) == 0
    told = capsys.readouterr().out
    assert "through paper" in told and "setting_before nothing" in told and "effect read back" in told
    assert main.run(["actions", "held", "--lake", str(root)]) == 0
    assert 'paper  ["nats", "orders", "t0"]  nothing → {' in capsys.readouterr().out
    loop.control.controller.pause(loop.world.now)
    assert main.run(["actions", "held", "--lake", str(root)]) == 0
    assert "nothing is held" in capsys.readouterr().out
    assert main.run(["actions", "show", "none", "--lake", str(root)]) != 0


def test_what_an_actuator_held_that_the_settings_name_no_more_is_ended(
    start: Start, world: Any, tmp_path: Path
) -> None:
    there = {"actuators": [{"kind": "file", "name": "paper", "path": str(tmp_path / "limits.json")}]}
    loop = start(**there, actuator="paper", lease_seconds=2)
    loop.throttle("t0")
    assert json.loads((tmp_path / "limits.json").read_text())["limits"][0]["tenant"] == "t0"
    loop.control.close()
    start()
    undo_log = UndoLog(tmp_path / "state")
    wait_until(lambda: not undo_log.held(), "the reaper to end it")
    undo_log.close()
    assert json.loads((tmp_path / "limits.json").read_text()) == {"limits": []}


@contextmanager
def bad_server(answer: bytes | None) -> Iterator[str]:
    """A server that accepts and answers ``answer`` to all that comes, or nothing at all; its address as Redis'."""
    listener = socket.create_server(("127.0.0.1", 0))
    held = []

    def work() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                held.append(connection)
                if answer is not None:
                    connection.recv(4096)
                    connection.sendall(answer)

    threading.Thread(target=work, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for connection in held:
            connection.close()


@pytest.mark.parametrize(("answer", "said"), [(None, "no answer"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not Redis'")])
def test_a_server_that_hangs_or_answers_nonsense_is_a_failure_and_holds_up_no_evaluation(
    start: Start, answer: bytes | None, said: str
) -> None:
    with bad_server(answer) as url:
        settings = {"actuators": [{"kind": "redis_key", "name": "mirror", "url": url, "timeout": 60}]}
        loop = start(**settings, actuator="mirror", lease_seconds=600)
        loop.throttle("t0")
        (row,) = loop.journal()
        assert row["outcome"] == "failed" and said in row["reason"]
        assert loop.control.controller.active_limits == {}
        loop.run(20, "t0")
        assert len(loop.journal()) <= 2, "the same failure is no news"


def test_policies_name_actuators_that_there_are() -> None:
    with pytest.raises(ValidationError, match="no actuator 'mirror'"):
        ControlSettings.model_validate({"policies": [{"name": "p", "actuator": "mirror"}]})
    twice = [{"kind": "file", "name": "a", "path": "x"}, {"kind": "file", "name": "a", "path": "y"}]
    with pytest.raises(ValidationError, match="two actuators are called 'a'"):
        ControlSettings.model_validate({"actuators": twice})
    with pytest.raises(ValidationError, match="none of file, redis_key"):
        ControlSettings.model_validate({"actuators": [{"kind": "magic", "name": "a"}]})
    with pytest.raises(ValidationError, match="bucket"):
        ControlSettings.model_validate({"actuators": [{"kind": "nats_kv", "name": "a", "bucket": "a b"}]})
