"""Several alert processes over one PostgreSQL: exactly one evaluates, and another goes on where it was killed."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from alerts.settings import AlertSettings
from alerts.standby import Address
from alerts.store.database import StoreError, transaction
from alerts.store.lease import LeaseLost
from alerts.store.postgres import Postgres
from lake.errors import UserError
from lake.web.server import listen
from tests.alerts.helpers import GoldLake, WebhookReceiver
from tests.alerts.test_process import Processes, eventually, processes
from tests.support.ports import free_ports
from tests.support.postgresql import PostgresServer
from tests.support.waiting import wait_until

__all__ = ["processes"]

SHORT = 1.0


class Evaluator:
    """What would be an alert process: it counts its turns, and writes a line in each."""

    def __init__(self, url: str, name: str, seconds: float = SHORT) -> None:
        self.store = Postgres(url, seconds=seconds)
        self.name = name
        self.turns = 0
        self.leave = threading.Event()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.store.in_turn, args=(self._work, self.stop), daemon=True)

    def _work(self) -> None:
        with closing(self.store.connect()) as database:
            with transaction(database):
                database.execute("INSERT INTO meta VALUES (?, 'here')", [f"{self.name}{self.turns}"])
            self.turns += 1
            while not self.stop.is_set():
                database.execute("SELECT 1")  # which only who evaluates may
                self.stop.wait(0.02)

    def evaluates(self) -> bool:
        try:
            self.store.lease.check()
        except LeaseLost:
            return False
        return True


@contextmanager
def evaluators(url: str, *names: str) -> Iterator[list[Evaluator]]:
    """They begin one after the other: the first of them evaluates."""
    made = [Evaluator(url, name) for name in names]
    try:
        for number, one in enumerate(made):
            one.thread.start()
            if number == 0:
                wait_until(lambda: one.turns, "the first to evaluate")  # noqa: B023
        yield made
    finally:
        for one in made:
            one.stop.set()
        for one in made:
            one.thread.join(60)


def lines(url: str) -> list[str]:
    with Postgres(url).read() as database:
        found = database.execute("SELECT key FROM meta WHERE value = 'here' ORDER BY key").fetchall()
    return [row[0] for row in found]


def test_one_evaluates_and_the_other_takes_over_at_once_when_it_ends(schema: str) -> None:
    with evaluators(schema, "a", "b") as (first, second):
        assert (first.evaluates(), second.evaluates()) == (True, False)
        with pytest.raises(LeaseLost):
            second.store.connect().execute("SELECT 1")
        first.stop.set()
        wait_until(second.evaluates, "the second to evaluate")
        assert not first.evaluates()
        wait_until(lambda: lines(schema) == ["a0", "b0"], "both to have had a turn")


def test_who_was_taken_for_dead_writes_nothing_more_and_stands_by(schema: str) -> None:
    with evaluators(schema, "a") as (first,):
        with closing(first.store.connect()) as late, psycopg.connect(schema) as other:
            other.execute("UPDATE lease SET holder = 'another', epoch = epoch + 1, beat = beat + 1")
            other.commit()
            with pytest.raises(LeaseLost), transaction(late):
                late.execute("INSERT INTO meta VALUES ('late', 'here')")
        assert lines(schema) == ["a0"]
        wait_until(lambda: first.turns == 2, "its next turn: that other one gives no sign of life")


def test_a_transaction_that_hangs_keeps_nobody_waiting_and_writes_nothing(schema: str) -> None:
    with evaluators(schema, "a", "b") as both:
        with (
            closing(both[0].store.connect()) as hanging,
            psycopg.connect(schema, autocommit=True) as other,
            pytest.raises(StoreError),
            transaction(hanging),
        ):
            hanging.execute("INSERT INTO meta VALUES ('late', 'here')")
            (pid,) = hanging.execute("SELECT pg_backend_pid()").fetchone()
            there = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
            wait_until(lambda: other.execute(there, [pid]).fetchone() is None, "the server to end it")
        wait_until(lambda: any(one.evaluates() for one in both), "one to go on")
        assert "late" not in lines(schema)


def test_after_the_server_was_restarted_somebody_evaluates_again(schema: str, postgres: PostgresServer) -> None:
    with evaluators(schema, "a") as (one,):
        postgres.restart()
        wait_until(lambda: one.turns > 1 and one.evaluates(), "a turn after the restart", seconds=40)


def test_what_cannot_be_used_is_one_clear_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gold: GoldLake
) -> None:
    settings = AlertSettings.model_validate({"store": {"env": "STORE_URL"}})
    with pytest.raises(UserError, match="STORE_URL, which is not set"):
        settings.store_of(gold.root)
    for wrong in ("mysql://a:hush@b/c", "postgresql://a:hush@b/%zz", "postgresql://a:hush@b/c?sslmod=x"):
        monkeypatch.setenv("STORE_URL", wrong)
        with pytest.raises(UserError, match="no URL of a PostgreSQL") as caught:
            settings.store_of(gold.root)
        assert "hush" not in str(caught.value)
    monkeypatch.setenv("STORE_URL", "postgresql://a:hush@127.0.0.1:1/c")
    store = settings.store_of(gold.root)
    assert isinstance(store, Postgres)
    with caplog.at_level(logging.DEBUG), pytest.raises(UserError, match="cannot be reached") as caught:
        store.in_turn(lambda: None, threading.Event())
    assert "hush" not in str(caught.value) + caplog.text


def test_a_process_that_stands_by_goes_on_where_another_hangs_or_is_killed(
    processes: Processes,
    gold: GoldLake,
    receiver: WebhookReceiver,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    address: Callable[[Path], str],
) -> None:
    monkeypatch.setenv("STORE_URL", schema)
    first = processes.start(receiver, store={"env": "STORE_URL"})
    address(gold.root)
    [port] = free_ports(1)
    second = processes.start(receiver, store={"env": "STORE_URL"}, port=port)
    log = gold.root.parent / "alerts.log"
    eventually(lambda: log.read_text().count("standing by: "), 1)

    def asked(path: str) -> tuple[int, str]:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60)
        return answer.status_code, answer.text

    elsewhere = 503, "standing by: another process evaluates"
    assert asked("/-/healthy") == (200, "OK")
    assert [asked(path) for path in ("/-/ready", "/api/v2/alerts", "/v1/limits")] == [elsewhere] * 3
    assert "sojourn_alerts_evaluates 0" in asked("/metrics")[1].splitlines()

    def heard() -> list[str]:
        """By id: who stops before an attempt is written down makes it again."""
        return [one["status"] for one in {one.id: one.payload for one in receiver.received}.values()]

    gold.partial(dead_lettered=1)
    eventually(heard, ["firing"])
    first.send_signal(signal.SIGSTOP)
    gold.partial(sidelined=1)
    eventually(heard, ["firing", "resolved"])
    eventually(lambda: asked("/-/ready"), (200, "OK"))
    assert "sojourn_alerts_evaluates 1" in asked("/metrics")[1].splitlines()
    first.send_signal(signal.SIGCONT)
    eventually(lambda: log.read_text().count("standing by: "), 2)
    second.kill()
    gold.partial(dead_lettered=1, tenant="other")
    eventually(heard, ["firing", "resolved", "firing"])
    assert not (gold.root / "state" / "alerts.sqlite").exists()


def test_who_finds_its_address_taken_stands_by_all_the_same_and_evaluates_where_it_is_free_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(listen("127.0.0.1", 0)) as taken:
        settings = AlertSettings.model_validate({"port": taken.getsockname()[1]})
        with closing(Address(settings)) as address:
            with address.standing_by(), pytest.raises(UserError, match="cannot listen"):
                address.listener()
            assert "standing by without an answer" in caplog.text
            taken.close()
            with closing(address.listener()) as own:
                assert own.getsockname()[1] == settings.port
