"""``sojourn connect``: the views for notebooks, by Spark Connect, each client in a session of its own.

Clients share one catalogue. In it, each table of the lake is a view over its Delta files, newest version at each query;
each of Sojourn's views is a view over rows that were worked out when its tables last changed. Spark Connect itself
trusts its clients with everything, code included: it listens on the loopback, under a token that nobody else knows, and
clients meet the gateway before it, which lets questions through.
"""

from __future__ import annotations

import atexit
import ipaddress
import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import grpc
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lake.errors import SojournError, UserError, first_line
from lake.remote import spark_name
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS
from spark_analytics.connect.gateway import DEFAULT_SECONDS, Gateway
from spark_analytics.connect.inside import serve_inside
from spark_analytics.connect.times import Query
from spark_analytics.faults import explained, quieten
from spark_analytics.histograms import QUANTILE_FUNCTION
from spark_analytics.plans import check_plan
from spark_analytics.runtime.launch import begin
from spark_analytics.runtime.session import build_session
from spark_analytics.runtime.store import store_jars, store_settings
from spark_analytics.small import Small
from spark_analytics.views import register

log = logging.getLogger(__name__)

#: Editions of a view's rows that are kept: a query that began before a refresh reads the older one to its end.
_EDITIONS = 3
_CONF = {
    "spark.sql.variable.substitute": "false",  # ${env:…} in a statement would be replaced after it was checked
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """The files, in PEM, of the certificate (with its chain) and of its private key."""

    certificate: Path
    key: Path

    def credentials(self) -> grpc.ServerCredentials:
        """What a server needs. UserError where a file cannot be read."""
        try:
            return grpc.ssl_server_credentials([(self.key.read_bytes(), self.certificate.read_bytes())])
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read: {error.strerror}", "name two files in PEM") from error


class Endpoint:
    """A Spark Connect server over ``lake``, its Java process ``confined`` by the kernel; a query has ``max_seconds``.

    Raises UserError where it may not, or cannot, listen at ``host``, and where it cannot be confined.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        host: str,
        port: int,
        token: str | None,
        tls: Tls | None = None,
        memory: str = "2g",
        confined: bool = False,
        max_seconds: float | None = None,
    ) -> None:
        check_address(host, port, token)
        credentials = tls and tls.credentials()
        lake.create()
        self._lake = lake
        self._small = Small(lake)
        self._editions: dict[str, int] = {}
        self._tokens: dict[str, object] = {}
        self._java = begin(memory, lake=lake.root, confined=confined)
        if self._java is None and confined:
            raise UserError(
                "Spark is configured by its own scripts' variables, which start it unconfined",
                "unset SPARK_CONF_DIR, SPARK_SUBMIT_OPTS, PYSPARK_SUBMIT_ARGS and the like, or give --unconfined",
            )
        self._rows = Path(tempfile.mkdtemp(prefix="views-", dir=self._java.folder if self._java else None))
        atexit.register(shutil.rmtree, self._rows, ignore_errors=True)
        conf = _CONF | store_settings(lake.tables) | {"spark.driver.memory": memory}
        jars = store_jars(lake.tables)
        self._session = build_session("sojourn-connect", conf=conf, quick_start=True, jars=jars, ahead=self._java)
        quieten(self._session)
        for name in TABLES:
            self._define(name, f"delta.`{spark_name(lake.path(name))}`")
        self._session.sql(QUANTILE_FUNCTION.replace("TEMPORARY ", ""))
        self.refresh()
        inner_port, inner_token = serve_inside(self._session)
        self._gateway = Gateway(
            host,
            port,
            f"127.0.0.1:{inner_port}",
            {*TABLES, *(view.name for view in VIEWS.values() if view.public)},
            token=token,
            upstream_token=inner_token,
            credentials=credentials,
            seconds=max_seconds or DEFAULT_SECONDS,
            look=self._look,
            cancel=self._cancel,
        )

    def refresh(self) -> None:
        """Work out anew the views whose tables have changed, and bring back what a client dropped."""
        large = set()
        for name in (view.name for view in VIEWS.values() if view.public):
            token = self._small.token(name)
            if token is not None and self._tokens.get(name) == token and self._session.catalog.tableExists(name):
                continue
            if not self._small.serves(name) or not self._by_reader(name):
                large.add(name)
            self._tokens[name] = token
        if large:
            self._by_spark(large)

    def serve(self, stop: threading.Event, refresh_seconds: float) -> None:
        """Until ``stop``; a refresh that fails is said, and tried again. SojournError if Spark has ended."""
        while not stop.wait(refresh_seconds):
            try:
                self.refresh()
            except SojournError as error:
                log.warning("the views are as they were: %s", error)
            except PySparkException as error:
                log.warning("the views are as they were: %s", explained(error))
            except (Py4JError, ConnectionError) as error:
                raise explained(error) from error

    def close(self) -> None:
        """Let clients go, and leave nothing behind."""
        self._gateway.close()
        self._session.stop()
        shutil.rmtree(self._rows, ignore_errors=True)
        if self._java is not None:
            self._java.close()

    def _look(self, statement: str, names: Collection[str]) -> None:
        """The second look, by Spark's own parser. The allow-list of fields does not replace it: SQL is text to that."""
        try:
            check_plan(self._session, statement, names)
        except PySparkException as error:
            raise UserError(f"Spark does not read this: {first_line(error)}", "see Spark's SQL reference") from error

    def _cancel(self, query: Query) -> None:
        """End the jobs that ``query`` has now, by the tag that Spark Connect gives them."""
        context = self._session.sparkContext
        tags = getattr(context._jvm.org.apache.spark.sql.connect.service, "ExecuteJobTag$")  # type: ignore[union-attr]
        context.cancelJobsWithTag(getattr(tags, "MODULE$").apply(*query))  # user, session, operation

    def _by_reader(self, name: str) -> bool:
        try:
            rows = self._small.rows(name)
        except SojournError as error:
            log.info("%s is left to Spark: %s", name, error)
            return False
        place = self._place(name)
        place.mkdir(parents=True)
        pq.write_table(rows, place / "rows.parquet")
        self._publish(name, place)
        return True

    def _by_spark(self, names: set[str]) -> None:
        session = self._session.newSession()
        register(session, self._lake, names)
        for name in names:
            place = self._place(name)
            session.table(name).write.parquet(str(place))
            self._publish(name, place)

    def _place(self, name: str) -> Path:
        return self._rows / name / str(self._editions.get(name, 0) + 1)

    def _publish(self, name: str, place: Path) -> None:
        self._define(name, f"parquet.`{place}`")
        self._editions[name] = edition = int(place.name)
        shutil.rmtree(place.with_name(str(edition - _EDITIONS)), ignore_errors=True)

    def _define(self, name: str, source: str) -> None:
        self._session.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {source}")


def check_address(host: str, port: int, token: str | None) -> None:
    """UserError where ``host`` is for others and there is no token, or where the port is taken."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"{host} is no address of this machine: {error.strerror}", "choose another --host") from error
    if not ipaddress.ip_address(address[4][0]).is_loopback and not token:
        raise UserError(
            f"{host} can be reached from other machines, and who reaches Spark Connect may read the lake",
            "set a token with SOJOURN_CONNECT_TOKEN or --token-file",
        )
    with socket.socket(address[0], socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address[4])
        except OSError as error:
            raise UserError(f"cannot listen at {host}:{port}: {error.strerror}", "choose another --port") from error
