"""SQL in a worker: limits hold wherever a statement spends time and memory, and a death is one statement's alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lake.errors import SojournError, UserError
from lake.lean import SYSTEM_POOL
from lake.reader import Reader
from lake.store import Lake
from lake.tables import PARTIALS
from lake.worker.process import SPARES, Process
from lake.worker.serve import MOST_SCOPES, SCOPE_SECONDS, _Session
from lake.worker.wire import Closed, Late, Wire, WireError
from lake.worker.worker import Overrun, Worker
from tests.lake.test_reader import append, enqueued
from tests.support.finishing import finish
from tests.support.waiting import wait_until

#: Endless for any machine, interruptible by nobody: one call of a scalar function for each row.
LONG = "SELECT SUM(length(repeat(CAST(a.n AS STRING), 100000000))) AS value FROM numbers a, numbers b"
LARGE = "SELECT size(sequence(1, 60000000)) AS value"
OVER = {"numbers": pa.table({"n": list(range(1000))})}
#: What no innocent statement reaches, however busy the machine.
AMPLE = 120.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake for all tests here: a process takes a second to start."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def worker(root: Path) -> Iterator[Worker]:
    with Worker(root, timeout_seconds=AMPLE, memory_mb=400) as made:
        yield made


def one(table: pa.Table) -> object:
    return table.column(0)[0].as_py()


def test_it_answers_as_the_reader_does_and_sees_commits(worker: Worker, root: Path) -> None:
    query = "SELECT queue, tenant, backlog, as_of FROM tenant_backlog_now"
    append(Lake(root), enqueued(0, 3), enqueued(1, 2, "umbrella"))
    finish(root)
    assert worker.query(query).sort_by("tenant").equals(Reader(root).query(query).sort_by("tenant"))
    before = worker.token("partials")
    append(Lake(root), enqueued(2, 4))
    assert worker.token("partials") != before
    finish(root)
    assert one(worker.query("SELECT SUM(backlog) AS backlog FROM tenant_backlog_now")) == 9


def test_the_errors_of_a_statement_are_the_readers_and_cost_no_process(worker: Worker, root: Path) -> None:
    assert worker.query("SELECT 1 AS n").num_rows == 1
    pid = worker.pid
    for wrong in ("SELECT nothing FROM partials", "DROP TABLE partials", "SELECT * FROM partials_"):
        with pytest.raises(UserError) as ours:
            worker.query(wrong)
        with pytest.raises(UserError) as theirs:
            Reader(root).query(wrong)
        assert (ours.value.what, ours.value.fix) == (theirs.value.what, theirs.value.fix)
    assert worker.pid == pid


@pytest.mark.parametrize("sql", [LARGE, "SELECT length(repeat('x', 1000000000)) AS value"])
def test_memory_taken_inside_a_function_is_limited_and_the_next_statement_runs(worker: Worker, sql: str) -> None:
    with pytest.raises(Overrun, match="more than 400 MB"):
        worker.query(sql)
    assert one(worker.query("SELECT 1 AS n")) == 1


def test_time_spent_inside_a_function_is_limited_and_what_was_put_is_there_again() -> None:
    with Worker(None, timeout_seconds=1) as worker:
        # A machine may be too busy to answer an innocent statement within a second: only the bomb has to fail.
        with pytest.raises(Overrun, match="longer than 1 s"):
            worker.query_over(OVER, LONG)
        assert one(_until_answered(worker)) == 1000


def _until_answered(worker: Worker) -> pa.Table:
    def ask() -> pa.Table | None:
        with contextlib.suppress(Overrun):
            return worker.query_over(OVER, "SELECT COUNT(*) AS n FROM numbers")
        return None

    return wait_until(ask, "an answer", seconds=AMPLE)


def test_killed_between_statements_it_is_replaced_and_nobody_notices(worker: Worker) -> None:
    assert one(worker.query_over(OVER, "SELECT COUNT(*) AS n FROM numbers")) == 1000
    killed = worker.pid
    _kill(killed)
    assert one(worker.query_over(OVER, "SELECT SUM(n) AS n FROM numbers")) == 499500
    assert worker.pid != killed


def test_killed_in_the_middle_of_a_statement_it_is_asked_again_once(worker: Worker) -> None:
    worker.query_over(OVER, "SELECT COUNT(*) AS n FROM numbers")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker.query_over, OVER, LONG.replace("100000000", "10"))
        first = worker.pid
        assert first is not None
        wait_until(lambda: _is_busy(first) or running.done(), "the statement runs")
        _kill(first)
        assert running.result(AMPLE).num_rows == 1
        endless = pool.submit(worker.query_over, OVER, LONG)

        def killed_whenever_it_runs() -> bool:
            pid = worker.pid
            if pid is not None and _is_busy(pid):
                _kill(pid)
            return endless.done()

        wait_until(killed_whenever_it_runs, "the statement's end", seconds=AMPLE)
        with pytest.raises(Overrun, match="signal 9"):
            endless.result(AMPLE)
    assert one(worker.query_over(OVER, "SELECT COUNT(*) AS n FROM numbers")) == 1000


def _state(pid: int) -> str:
    """As ps tells it: R runs, S waits, Z has ended; X where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def _kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_busy(pid: int) -> bool:
    return _state(pid) == "R"


def test_cancelled_from_another_thread_a_statement_ends(worker: Worker) -> None:
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(worker.query_over, OVER, LONG)

        def ended() -> bool:
            worker.cancel()
            return endless.done()

        wait_until(ended, "the statement's end", seconds=AMPLE)
        with pytest.raises(UserError, match="cancelled"):
            endless.result(0)


def test_cancelled_while_a_process_is_started_for_it_a_statement_ends(tmp_path: Path) -> None:
    with Worker(tmp_path, timeout_seconds=AMPLE, spare=False) as fresh, ThreadPoolExecutor(1) as pool:
        endless = pool.submit(fresh.query_over, OVER, LONG)
        wait_until(fresh._lock.locked, "its turn", every=0.0005)
        fresh.cancel()  # once
        with pytest.raises(UserError, match="cancelled"):
            endless.result(AMPLE)
        assert one(fresh.query_over(OVER, "SELECT COUNT(*) AS n FROM numbers")) == 1000


def test_closed_in_the_middle_of_a_statement_both_end(tmp_path: Path) -> None:
    worker = Worker(tmp_path, timeout_seconds=AMPLE)
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(worker.query_over, OVER, LONG)
        wait_until(lambda: worker.pid, "a process", seconds=AMPLE)
        worker.close()
        with pytest.raises(SojournError):
            endless.result(AMPLE)
    with pytest.raises(SojournError, match="closed"):
        worker.query("SELECT 1 AS n")


def test_many_threads_share_one_worker_while_it_is_killed_again_and_again(worker: Worker) -> None:
    over, answered = threading.Event(), threading.Semaphore(0)

    def ask(thread: int) -> list[object]:
        answers = []
        for _ in range(20):
            answers.append(one(worker.query_over(OVER, f"SELECT SUM(n) + {thread} AS n FROM numbers")))
            answered.release()
        return answers

    def kill() -> None:
        count = 0
        while not over.is_set():
            count += answered.acquire(timeout=0.2)
            if count == 20:  # a statement survives one death, not two: each process may answer some
                count = 0
                _kill(worker.pid)

    with ThreadPoolExecutor(5) as pool:
        killing = pool.submit(kill)
        try:
            answers = list(pool.map(ask, range(4)))
        finally:
            over.set()
        killing.result()
    assert answers == [[499500 + thread] * 20 for thread in range(4)]


def test_it_sees_nothing_of_its_parents_environment_writes_no_file_and_makes_no_core() -> None:
    with Worker(None, timeout_seconds=AMPLE) as worker:
        worker.query_over({}, "SELECT 1 AS n")
        proc = Path(f"/proc/{worker.pid}")
        names = {line.split("=")[0] for line in (proc / "environ").read_text().split("\0") if line}
        limits = (proc / "limits").read_text()
    threads = {name for name in names if name.endswith("_THREADS")}
    assert names <= {"PYTHONPATH", "LC_ALL", "LD_LIBRARY_PATH", *SYSTEM_POOL} | threads
    for limit in ("Max file size", "Max core file size"):
        assert next(line for line in limits.splitlines() if line.startswith(limit)).split()[-3] == "0"


def test_all_of_arrow_gives_back_to_the_system_what_it_frees() -> None:
    code = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    environ = {**os.environ, **SYSTEM_POOL}
    told = subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "system", "the variable has another name"
    with Worker(None, timeout_seconds=AMPLE) as worker:
        worker.query_over({}, "SELECT 1 AS n")
        theirs = Path(f"/proc/{worker.pid}/environ").read_text().split("\0")
    assert {f"{name}={value}" for name, value in SYSTEM_POOL.items()} <= {*theirs}


def test_an_idle_one_ends_by_itself_and_another_answers() -> None:
    with Worker(None, timeout_seconds=AMPLE, idle_seconds=1) as worker:
        assert one(worker.query_over({}, "SELECT 1 AS n")) == 1
        pid = worker.pid
        wait_until(lambda: _state(pid or 0) in "ZX", "its end", seconds=AMPLE)
        assert one(worker.query_over({}, "SELECT 2 AS n")) == 2


def test_when_its_parent_is_killed_it_ends_whatever_it_does(tmp_path: Path) -> None:
    code = f"""
import threading, time
from tests.lake.test_worker import LONG, OVER
from lake.worker.process import SPARES
from lake.worker.worker import Worker
worker = Worker(None)
worker.query_over({{}}, "SELECT 1 AS n")
SPARES.refill()
print(worker.pid, SPARES._spare.pid, flush=True)
worker.query_over(OVER, {LONG!r})
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    family = [int(pid) for pid in parent.stdout.readline().split()]
    wait_until(lambda: _is_busy(family[0]), "the statement runs", seconds=AMPLE)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for pid in family:
        wait_until(lambda pid=pid: _state(pid) in "ZX", "the end of a worker", seconds=AMPLE)  # type: ignore[misc]


def test_a_spare_is_ready_for_the_next_and_the_dead_are_not_taken() -> None:
    SPARES.refill()
    first = SPARES.take()
    SPARES.refill()
    second = SPARES.take()
    assert first.pid != second.pid
    first.kill()
    assert not first.alive
    second.kill()


@pytest.fixture
def ends() -> Iterator[tuple[Wire, int, int]]:
    """A wire, and what its other side reads and writes."""
    there, back = os.pipe(), os.pipe()
    yield Wire(back[0], there[1], most=1 << 20), there[0], back[1]
    for descriptor in (*there, *back):
        with contextlib.suppress(OSError):
            os.close(descriptor)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 11 + b"\0",
        b"\xff" * 12,
        b"\0\0\0\x02\0\0\0\0\0\0\0\0[]",
        b"\0\0\0\x02\0\0\0\0\0\0\0\x08{}ARROW???",
        b"\0\0\x80\0\0\0\0\0\0\0\0\0" + b"[" * 0x8000,
        b"\0\0\0\x02\x7f\0\0\0\0\0\0\0{}",
    ],
    ids=["empty", "huge", "no object", "no arrow", "deep", "huge body"],
)
def test_garbage_is_refused(ends: tuple[Wire, int, int], garbage: bytes) -> None:
    wire, _, writes = ends
    os.write(writes, garbage)
    with pytest.raises(WireError):
        wire.receive(deadline=time.monotonic() + 10)


def test_half_a_frame_is_late_and_then_closed(ends: tuple[Wire, int, int]) -> None:
    wire, _, writes = ends
    os.write(writes, b"\0\0")
    with pytest.raises(Late):
        wire.receive(deadline=time.monotonic())
    os.close(writes)
    with pytest.raises(Closed):
        wire.receive()


def test_a_frame_that_nobody_takes_is_late(ends: tuple[Wire, int, int]) -> None:
    with pytest.raises(Late):
        ends[0].send({}, pa.table({"a": list(range(100_000))}), deadline=time.monotonic() + 0.1)


def test_tables_of_every_type_of_the_lake_go_through_unchanged(ends: tuple[Wire, int, int]) -> None:
    wire, reads, writes = ends
    other = Wire(reads, writes, most=1 << 30)
    row = enqueued(0, 1)
    table = pa.Table.from_pylist([row] * 5000, schema=PARTIALS.schema)
    table = pa.concat_tables([table, table.slice(17, 100), table.slice(0, 0)])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(wire.send, {"do": "put"}, table)
        header, received = other.receive(deadline=time.monotonic() + AMPLE)
        sent.result()
    assert header == {"do": "put"}
    assert received is not None
    assert received.equals(table)


def test_a_process_that_says_nonsense_is_the_statements_error_and_is_replaced(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one(worker.query("SELECT 1 AS n")) == 1

    def nonsense(self: Process, seconds: float) -> object:
        raise WireError("a frame is larger than allowed")

    with monkeypatch.context() as patched:
        patched.setattr(Process, "receive", nonsense)
        with pytest.raises(Overrun):
            worker.query("SELECT 1 AS n")
    assert one(worker.query("SELECT 2 AS n")) == 2


def test_a_table_that_is_read_often_answers_alike_and_is_replaced_like_any() -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)

    def made(first: int) -> pa.Table:
        columns = {
            "n": pa.array(range(first, first + 5)),
            "s": pa.array(["a", None, 'b"', "a", ""]).dictionary_encode(),
            "at": pa.array([day] * 5, pa.timestamp("us", "UTC")),
            "d": pa.array([Decimal("1.5")] * 5, pa.decimal128(9, 2)),
            "void": pa.nulls(5, pa.float64()),
        }
        return pa.table(columns)

    with Worker(None, timeout_seconds=AMPLE) as worker:
        for first in (0, 100, 200):
            given = {"numbers": made(first), "others": made(first + 1)}
            sql = "SELECT numbers.* FROM numbers JOIN others USING (n) WHERE n % 2 = 0 ORDER BY n"
            answers = [worker.query_over(given, sql) for _ in range(20)]
            assert all(one.equals(answers[0]) for one in answers)
            assert answers[0].column("n").to_pylist() == [n for n in range(first + 1, first + 5) if n % 2 == 0]


def test_of_many_queues_histories_those_that_were_asked_for_last_are_held_while_they_fit(
    tmp_path: Path, ends: tuple[Wire, int, int]
) -> None:
    lake = Lake(tmp_path)
    queues = [f"queue-{number}" for number in range(MOST_SCOPES + 2)]
    append(lake, *(enqueued(number, 3) | {"queue": queue} for number, queue in enumerate(queues)))
    finish(tmp_path)
    session = _Session(ends[0], {"root": str(tmp_path), "timeout_seconds": AMPLE, "memory_mb": 2048})

    def ask(queue: str) -> object:
        sql = f"SELECT SUM(backlog) AS backlog FROM tenant_backlog WHERE queue = '{queue}'"
        scope = {"broker": "nats", "queue": queue}
        _, rows = session._answer({"do": "query", "sql": sql, "scope": scope, "hold": True})
        assert rows is not None
        return one(rows)

    def held() -> list[str]:
        return [scope.queue for scope, _ in session._readers if scope is not None]

    assert [ask(queue) for queue in queues] == [3] * len(queues)
    assert held() == queues[-MOST_SCOPES:]
    assert all(reader.held_of_scope > 0 for reader in session._readers.values())
    assert ask(queues[-3]) == 3 and held()[-1] == queues[-3], "asked again, it goes last"
    session._scopes_bytes = sum(reader.held_of_scope for reader in session._readers.values()) - 1
    assert ask(queues[-1]) == 3 and len(held()) == MOST_SCOPES - 1 and queues[-8] not in held()
    session._scopes_bytes = 0
    assert ask(queues[0]) == 3 and held() == [queues[0]], "the one that is asked for is always held"


def test_a_queues_history_that_nobody_asks_about_any_more_is_let_go_of(
    tmp_path: Path, ends: tuple[Wire, int, int]
) -> None:
    lake = Lake(tmp_path)
    append(lake, *(enqueued(number, 3) | {"queue": f"queue-{number}"} for number in range(2)))
    finish(tmp_path)
    session = _Session(ends[0], {"root": str(tmp_path), "timeout_seconds": AMPLE, "memory_mb": 2048})
    sql = "SELECT SUM(backlog) AS backlog FROM tenant_backlog"
    for queue in ("queue-0", "queue-1"):
        scope = {"broker": "nats", "queue": queue}
        session._answer({"do": "query", "sql": sql, "scope": scope, "hold": True})
    first, last = session._asked
    assert session.holds_until() == session._asked[first] + SCOPE_SECONDS
    session._asked[first] -= SCOPE_SECONDS
    session.let_go_of_scopes()
    assert [*session._readers] == [last]
    session._asked[last] -= SCOPE_SECONDS
    session.let_go_of_scopes()
    assert not session._readers and session.holds_until() is None
    session._answer({"do": "query", "sql": sql, "scope": None, "hold": True})
    assert session.holds_until() is None, "what is read of all queues is held for as long as the process lives"
