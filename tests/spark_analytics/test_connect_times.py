"""A query over Spark Connect has its time, whether its client waits for it, leaves it or says what it likes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2

from lake.store import Lake
from spark_analytics.connect import times
from spark_analytics.connect.times import Query, QueryTimes, named
from tests.spark_analytics.connect_client import Client
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

HOME = Path(__file__).parents[2]

#: What somebody types into a notebook, by pyspark's own client; it prints how the query ended.
NOTEBOOK = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
try:
    print("ended", spark.range(10**15).selectExpr("sum(id % 7 * id % 11) AS s").collect())
except PySparkException as error:
    print(type(error).__name__, error)
"""


class Interrupted:
    """Remembers what was to be interrupted."""

    def __init__(self, *, fails: bool = False) -> None:
        self.operations: list[str] = []
        self.told = threading.Event()
        self._fails = fails

    def __call__(self, request: base_pb2.InterruptRequest) -> None:
        self.operations.append(request.operation_id)
        self.told.set()
        if self._fails:
            raise OSError("Spark has ended")


@contextmanager
def timing(
    seconds: float, interrupt: Interrupted, cancel: Callable[[Query], None] = lambda query: None
) -> Iterator[QueryTimes]:
    one = QueryTimes(seconds, interrupt, cancel)
    try:
        yield one
    finally:
        one.close()


def asked(operation: str = "") -> base_pb2.ExecutePlanRequest:
    return base_pb2.ExecutePlanRequest(session_id=str(uuid.uuid4()), operation_id=operation)


def test_a_query_whose_time_is_over_is_interrupted_by_the_name_that_its_client_gave_it() -> None:
    interrupted = Interrupted(fails=True)
    with timing(0.05, interrupted) as one:
        requests = [asked(str(uuid.uuid4())), asked()]
        queries = [one.begin(request) for request in requests]
        assert requests[1].operation_id  # one without a name is given one
        wait_until(lambda: len(interrupted.operations) == 2, "both queries to be interrupted")
        assert interrupted.operations == [request.operation_id for request in requests]
        assert all(one.is_over(query) and one.left(query) >= times.GRACE_SECONDS for query in queries)
        assert "0.05 s" in str(one.error())


def test_a_query_that_has_ended_is_left_alone_and_asking_for_its_rows_gives_it_no_more_time() -> None:
    interrupted = Interrupted()
    with timing(3600.0, interrupted) as one:
        query = one.begin(asked())
        again = base_pb2.ReattachExecuteRequest(session_id=query.session, operation_id=query.operation)
        assert named(again) == query and one.left(query) <= 3600.0 + times.GRACE_SECONDS
        one.end(query)
        assert not one.is_over(query)
    assert interrupted.operations == []


def test_of_very_many_that_nobody_gives_up_the_oldest_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_MOST_HELD", 2)
    interrupted = Interrupted()
    with timing(3600.0, interrupted) as one:
        queries = [one.begin(asked()) for _ in range(3)]
        wait_until(lambda: interrupted.operations, "the oldest to be interrupted")
        assert interrupted.operations == [queries[0].operation]


def test_jobs_that_begin_after_their_query_was_interrupted_are_cancelled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_AGAIN_SECONDS", (0.01, 0.02, 0.04))
    cancelled: list[Query] = []
    interrupted = Interrupted(fails=True)
    with timing(0.05, interrupted, cancelled.append) as one:
        query = one.begin(asked())
        wait_until(lambda: len(cancelled) == 4, "its jobs to be cancelled at once and three times more")
        assert set(cancelled) == {query} and interrupted.operations == [query.operation] * 4


@contextmanager
def serving(folder: Path, max_seconds: float) -> Iterator[int]:
    """The command on an empty lake; its port. At the end it is asked to end, and has to."""
    Lake(folder / "lake").create()
    port = free_ports(1)[0]
    arguments = ["connect", "--port", str(port), "--lake", str(folder / "lake"), "--max-seconds", str(max_seconds)]
    server = subprocess.Popen(
        [sys.executable, "-m", "sojourn.cli.main", *arguments, "--unconfined"],
        env={**os.environ, "PYTHONPATH": str(HOME), "SOJOURN_JAVA_ARCHIVE": "ready"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        assert "sc://" in server.stdout.readline()
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            assert server.wait(60) == 0
        finally:
            server.kill()  # else a query that nobody waits for keeps all cores from the tests after this one
            server.stdout.close()


def interrupted_in_a_notebook(port: int, max_seconds: float) -> None:
    """What would take days is asked for by pyspark's own client, and told to have been interrupted."""
    run = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, f"sc://localhost:{port}"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert f"ran for more than {max_seconds:g} s and was interrupted" in run.stdout, (run.stdout, run.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_pyspark_s_own_client_is_told_that_its_query_took_too_long_and_its_places_are_free_again(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, 3) as port:
        interrupted_in_a_notebook(port, 3)
        client = Client(port)

        def answers() -> bool:
            try:
                return client.sql("SELECT 1 AS one") == [{"one": 1}]
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # on a machine that is too busy for this
                return False

        wait_until(answers, "a short query to be answered")
        client.close()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.deep
def test_a_query_that_was_interrupted_before_it_had_a_job_has_none_later_and_the_server_ends(tmp_path: Path) -> None:
    with serving(tmp_path, 0.3) as port:
        interrupted_in_a_notebook(port, 0.3)
