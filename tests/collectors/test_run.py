"""Collectors side by side: schedules, lost connections, and what a user reads when something is wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.run import collect, run
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from lake.errors import SojournError, UserError
from lake.secret import Secret
from tests.collectors.support import collecting, make_queue, settings
from tests.support.nats import NatsServer
from tests.support.ports import free_ports


@dataclass
class Fake:
    """A collector that does as it is told."""

    name: str = "fake"
    interval: float = 0.1
    takes: float = 0.0
    refuses: int = 0  # openings that fail
    loses: tuple[int, ...] = ()  # steps that lose the connection
    fault: SojournError = field(default_factory=lambda: ConnectionLost("gone"))  # what they raise
    unfixed: tuple[int, ...] = ()  # openings that only the user can fix
    opened: int = 0
    closed: int = 0
    steps: list[float] = field(default_factory=list)
    inside: int = 0

    async def open(self) -> None:
        self.opened += 1
        if self.opened <= self.refuses:
            raise ConnectionLost(f"{self.name} cannot be reached")
        if self.opened in self.unfixed:
            raise UserError("the password cannot be read", "fix the path")

    async def step(self) -> None:
        self.inside += 1
        assert self.inside == 1, "steps overlap"
        self.steps.append(time.monotonic())
        await asyncio.sleep(self.takes)
        self.inside -= 1
        if len(self.steps) in self.loses:
            raise self.fault

    async def close(self) -> None:
        self.closed += 1


def keep(seconds: float, *collectors: Fake, grace: float = 5.0) -> None:
    stop = threading.Event()
    threading.Timer(seconds, stop.set).start()
    asyncio.run(collect(collectors, stop, SelfMetrics(), grace=grace))


def test_steps_keep_their_schedule_and_leave_out_what_a_long_one_covers() -> None:
    quick, slow = Fake(interval=0.1), Fake(interval=0.1, takes=0.25)
    keep(1.5, quick, slow)
    elapsed = quick.steps[-1] - quick.steps[0]
    assert 8 <= len(quick.steps) <= elapsed / 0.1 + 2
    assert 2 <= len(slow.steps) <= elapsed / 0.3 + 2
    phases = [(step - quick.steps[0]) % 0.1 for step in quick.steps]
    assert sum(min(phase, 0.1 - phase) < 0.04 for phase in phases) > len(phases) * 0.6


def test_a_broker_that_cannot_be_reached_delays_no_other() -> None:
    well, dead = Fake(), Fake(name="dead", refuses=1000)
    keep(1.0, well, dead, grace=0.2)
    assert len(well.steps) >= 5
    assert dead.opened >= 2
    assert well.closed == dead.closed == 1


def test_a_lost_connection_is_opened_again() -> None:
    collector = Fake(loses=(2, 4))
    keep(2.0, collector)
    assert collector.opened == 3
    assert len(collector.steps) > 4


def test_a_broker_that_refuses_later_is_opened_again_as_its_secret_may_be_another_now() -> None:
    collector = Fake(loses=(2,), fault=CredentialsRefused("refused", "fix it"))
    keep(1.5, collector)
    assert collector.opened == 2
    assert len(collector.steps) > 3


def test_what_the_user_must_mend_ends_no_run_that_has_begun() -> None:
    well, other = Fake(), Fake(loses=(2,), unfixed=(2, 3))
    keep(2.5, well, other)
    assert other.opened == 4
    assert len(other.steps) > 2
    assert len(well.steps) > 10


def test_what_the_user_must_mend_at_one_broker_keeps_no_other_from_beginning() -> None:
    well, other = Fake(), Fake(unfixed=(1, 2))
    keep(2.5, well, other)
    assert other.opened == 3
    assert len(well.steps) > 10
    assert len(other.steps) > 2


def test_what_the_user_must_mend_at_every_broker_ends_a_run_at_once() -> None:
    for_ever = tuple(range(1, 1000))
    with pytest.raises(UserError, match="the password cannot be read"):
        keep(60.0, Fake(unfixed=for_ever), Fake(unfixed=for_ever), grace=float("inf"))


def test_what_the_user_must_mend_is_said_before_a_broker_that_is_only_away() -> None:
    with pytest.raises(UserError, match="the password cannot be read"):
        keep(60.0, Fake(refuses=1000), Fake(unfixed=tuple(range(1, 1000))), grace=0.5)


def test_nothing_reached_within_the_grace_is_one_clear_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(UserError, match=r"broker 'mq' at nats://127.0.0.1:\d+ cannot be reached.* – start it"):
        run(settings(f"nats://127.0.0.1:{port}", connect_grace=0.5), tmp_path, threading.Event())


def test_wrong_credentials_are_one_clear_line_without_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = NatsServer(tmp_path / "nats", "--user", "app", "--pass", "right")
    monkeypatch.setenv("MQ_PASSWORD", "wr0ng-secret")
    try:
        server.start()
        broker = {"user": "app", "password": {"env": "MQ_PASSWORD"}}
        with pytest.raises(UserError, match="refuses the credentials – check user, password") as raised:
            run(settings(server.url, connect_grace=0.5, broker=broker), tmp_path / "lake", threading.Event())
        assert "wr0ng" not in str(raised.value)
    finally:
        server.stop()


def test_a_server_without_jetstream_is_one_clear_line(tmp_path: Path) -> None:
    import subprocess

    from tests.support.servers import program
    from tests.support.waiting import wait_until

    (port,) = free_ports(1)
    command = [str(program("nats-server")), "-a", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            import socket

            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(answers, "nats-server")
        with pytest.raises(UserError, match="has no JetStream for this account – start the server with -js"):
            run(settings(f"nats://127.0.0.1:{port}"), tmp_path, threading.Event())
    finally:
        process.kill()
        process.wait()


def test_one_broker_has_one_collecting_process(own_nats_server: NatsServer, tmp_path: Path) -> None:
    make_queue(own_nats_server.url)
    chosen = settings(own_nats_server.url)
    with (
        collecting(chosen, tmp_path / "lake"),
        pytest.raises(UserError, match="a collector of broker 'mq' is already running"),
    ):
        run(chosen, tmp_path / "lake", threading.Event())


@pytest.mark.parametrize(
    ("broker", "fault"),
    [
        ({"password": {"env": "NOT_SET_ANYWHERE"}}, "environment variable NOT_SET_ANYWHERE"),
        ({"token": {"file": "/not/there"}}, "cannot be read from /not/there"),
    ],
)
def test_settings_that_cannot_work_are_one_clear_line(tmp_path: Path, broker: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        run(settings("nats://127.0.0.1:1", broker=broker, connect_grace=0.3), tmp_path, threading.Event())


@pytest.mark.parametrize(("held", "fault"), [(b"wr0ng\xff", "is no text in UTF-8"), (b" \n", "which is empty")])
def test_a_secret_that_is_none_is_one_clear_line_without_it(tmp_path: Path, held: bytes, fault: str) -> None:
    (tmp_path / "secret").write_bytes(held)
    with pytest.raises(UserError, match=fault) as raised:
        Secret(file=tmp_path / "secret").read("the token of broker 'mq'")
    assert "wr0ng" not in str(raised.value)


@pytest.mark.parametrize(
    ("broker", "fault"),
    [
        ({"url": "nats://me:secret@host"}, "no credentials in the address"),
        ({"url": "nats://host:42x2"}, "Port could not be cast"),
        ({"kind": "kafka", "bootstrap": "one:9092,two:99999"}, "Port out of range"),
        ({"kind": "kafka", "bootstrap": "one:9092,"}, "bootstrap is host:port"),
        ({"streams": ["A", "A"]}, "'A' is there twice"),
        ({"password": {}}, "give either env"),
        ({"colour": "blue"}, "Extra inputs"),
    ],
)
def test_settings_are_checked_before_anything_runs(broker: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        CollectSettings.model_validate({"brokers": [broker]})


def test_without_a_broker_there_is_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no broker to collect from"):
        run(CollectSettings(), tmp_path, threading.Event())
