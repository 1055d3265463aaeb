"""Spark Connect over a real lake: a session of its own for each client, views that cannot be written to, and an end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError
from lake.store import Lake
from lake.tables import PARTIALS, TABLES
from lake.views import VIEWS
from spark_analytics.connect import Tls, check_address
from spark_analytics.connect.gateway import Gateway
from tests.reference.partials import partials_of
from tests.security.plans import HOSTILE_PLANS, MARKER
from tests.spark_analytics.connect_client import Client
from tests.spark_analytics.events import event
from tests.spark_analytics.notebook import AT, HOSTILE
from tests.support.certificates import make_certificates
from tests.support.finishing import finish
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

HOME = Path(__file__).parents[2]
TOKEN = "only-for-this-test"


def arrive(lake: Lake, age: float) -> None:
    rows = partials_of([event("enqueued", age, message_id=f"m{age}")])
    lake.append("partials", pa.Table.from_pylist(rows, PARTIALS.schema))
    finish(lake.root)


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
        env={**os.environ, "PYTHONPATH": str(HOME), "SOJOURN_CONNECT_TOKEN": TOKEN, "SOJOURN_JAVA_ARCHIVE": "ready"},
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
@pytest.mark.deep
def test_pyspark_s_own_client_asks_what_it_likes_and_does_nothing_else(lake: Lake, port: int) -> None:
    before = {name: lake.version(name) for name in TABLES}
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("notebook.py")), f"sc://localhost:{port}/;token={TOKEN}"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    notebook = json.loads(run.stdout.splitlines()[-1])
    told = notebook["told"]
    assert (told["table"], told["pandas"], told["frame in sql"]) == (["orders"], ["orders"], 1)
    assert told["sql"] >= 1
    assert told["parameters"] == [1, HOSTILE, 8, int(AT.timestamp())]
    assert (told["methods"], told["own rows"], told["many own rows"], told["quantile"]) == (1, 1, 200_000, None)
    assert told["tables"] == sorted({*TABLES, *(view.name for view in VIEWS.values() if view.public)})
    assert "UNRESOLVED_COLUMN" in told["mistake"]
    assert (told["secrets"], told["alias"]) == ([], 1)
    for name, refusal in notebook["refused"].items():
        assert refusal is not None and "PERMISSION_DENIED" in refusal, (name, refusal)
    assert not notebook["written"]
    assert {name: lake.version(name) for name in TABLES} == before


@pytest.mark.spark
@pytest.mark.slow
def test_no_hostile_plan_comes_through_and_none_leaves_a_trace(lake: Lake, port: int) -> None:
    Path(MARKER).unlink(missing_ok=True)
    before = {name: lake.version(name) for name in TABLES}
    client = Client(port, TOKEN)
    for name, build in HOSTILE_PLANS.items():
        with pytest.raises(grpc.RpcError) as refused:
            client.send(build())
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED, name
        assert "root:x" not in (refused.value.details() or ""), name
    assert client.sql("SELECT 1 AS one") == [{"one": 1}]
    client.close()
    assert not Path(MARKER).exists()
    assert {name: lake.version(name) for name in TABLES} == before


@pytest.mark.spark
@pytest.mark.slow
def test_without_the_token_nobody_is_let_in(port: int) -> None:
    for token in (None, "another"):
        client = Client(port, token)
        with pytest.raises(grpc.RpcError) as refused:
            client.sql("SELECT 1")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        client.close()


def test_the_gateway_speaks_tls_and_says_that_spark_is_away(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    credentials = Tls(made.certificate, made.key).credentials()
    gateway = Gateway("127.0.0.1", 0, "127.0.0.1:1", (), token=TOKEN, upstream_token="inner", credentials=credentials)
    request = base_pb2.ReleaseSessionRequest(session_id=str(uuid.uuid4())).SerializeToString()
    trusted = grpc.ssl_channel_credentials(made.ca.read_bytes())
    with grpc.secure_channel(f"localhost:{gateway.port}", trusted) as channel:
        ask = channel.unary_unary("/spark.connect.SparkConnectService/ReleaseSession")
        for token, code in ((TOKEN, grpc.StatusCode.UNAVAILABLE), ("x", grpc.StatusCode.UNAUTHENTICATED)):
            with pytest.raises(grpc.RpcError) as refused:
                ask(request, metadata=[("authorization", f"Bearer {token}")], timeout=20)
            assert refused.value.code() is code
    gateway.close()
    with pytest.raises(UserError, match="cannot be read"):
        Tls(tmp_path / "nothing", made.key).credentials()


def test_other_machines_are_only_served_with_a_token() -> None:
    with pytest.raises(UserError, match="set a token with SOJOURN_CONNECT_TOKEN"):
        check_address("0.0.0.0", free_ports(1)[0], None)
    check_address("0.0.0.0", free_ports(1)[0], TOKEN)
    check_address("127.0.0.1", free_ports(1)[0], None)
