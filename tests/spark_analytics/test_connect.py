"""Spark Connect over a real lake: a session of its own for each client, views that cannot be written to, and an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from lake.errors import UserError
from lake.store import Lake
from lake.tables import PARTIALS, TABLES
from lake.views import VIEWS
from spark_analytics.connect import check_address
from tests.reference.partials import partials_of
from tests.spark_analytics.connect_client import Client
from tests.spark_analytics.events import event
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

HOME = Path(__file__).parents[2]
TOKEN = "only-for-this-test"


def arrive(lake: Lake, age: float) -> None:
    rows = partials_of([event("enqueued", age, message_id=f"m{age}")])
    lake.append("partials", pa.Table.from_pylist(rows, PARTIALS.schema))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("connect") / "lake")
    made.create()
    arrive(made, 1.0)
    return made


@pytest.fixture(scope="module")
def port(lake: Lake) -> Iterator[int]:
    """A server of ``sojourn connect``, which has to end cleanly when it is told to."""
    free = free_ports(1)[0]
    arguments = ["connect", "--port", str(free), "--lake", str(lake.root), "--refresh", "0.5"]
    server = subprocess.Popen(
        [sys.executable, "-m", "sojourn.cli.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(HOME), "SOJOURN_CONNECT_TOKEN": TOKEN, "SOJOURN_JAVA_ARCHIVE": "off"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    line = server.stdout.readline()
    assert f"sc://localhost:{free}/;token=…" in line
    assert TOKEN not in line
    yield free
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    server.stdout.close()


@pytest.mark.spark
@pytest.mark.slow
def test_a_notebook_reads_the_views_and_sees_what_is_new(lake: Lake, port: int) -> None:
    client = Client(port, TOKEN)
    backlog = "SELECT sum(backlog) AS n FROM tenant_backlog_now"
    before = client.sql(backlog)[0]["n"]
    assert client.sql("SELECT queue, mode FROM queue_health_now")[0]["mode"] in ("fast", "backlogged")
    arrive(lake, 2.0)
    wait_until(lambda: client.sql(backlog)[0]["n"] == before + 1, "the new message", seconds=90)
    there = {row["tableName"] for row in client.sql("SHOW TABLES")}
    assert there == {*TABLES, *(view.name for view in VIEWS.values() if view.public)}
    quantile = "SELECT histogram_quantile(flatten(collect_list(histogram)), 0.5) AS p FROM attempt_age"
    assert client.sql(quantile) == [{"p": None}]
    client.close()


@pytest.mark.spark
@pytest.mark.slow
def test_views_are_not_written_to_and_one_that_was_dropped_comes_back(lake: Lake, port: int) -> None:
    client = Client(port, TOKEN)
    version = lake.version("partials")
    for name in ("partials", "queue_health_now"):
        with pytest.raises(grpc.RpcError, match="EXPECT_TABLE_NOT_VIEW"):
            client.sql(f"INSERT INTO {name} SELECT * FROM {name}")
    assert lake.version("partials") == version
    client.sql("DROP VIEW limits")
    wait_until(lambda: any(row["tableName"] == "limits" for row in client.sql("SHOW TABLES")), "limits", seconds=90)
    client.close()


@pytest.mark.spark
@pytest.mark.slow
def test_without_the_token_nobody_is_let_in(port: int) -> None:
    for token in (None, "another"):
        client = Client(port, token)
        with pytest.raises(grpc.RpcError) as refused:
            client.sql("SELECT 1")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        client.close()


def test_other_machines_are_only_served_with_a_token() -> None:
    with pytest.raises(UserError, match="set a token with SOJOURN_CONNECT_TOKEN"):
        check_address("0.0.0.0", free_ports(1)[0], None)
    check_address("0.0.0.0", free_ports(1)[0], TOKEN)
    check_address("127.0.0.1", free_ports(1)[0], None)
