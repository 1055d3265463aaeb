"""Fixtures that every test may ask for: real servers, one Spark session, a fresh lake."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from lake.errors import UserError
from lake.store import Lake
from tests.support.deep import CHOSEN, examples
from tests.support.kafka import KafkaServer
from tests.support.nats import NatsServer
from tests.support.processor import Processor
from tests.support.servers import require_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The environment that says where downloads come from and are kept; all other settings are the test's own.
KEPT = ("SOJOURN_CACHE", "SOJOURN_JARS", "SOJOURN_MAVEN_REPOSITORY")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes may hold a time, as what gzip packs: named by them, a test is another one in each process."""
    return argname if isinstance(val, bytes) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long those who have the time want to try."""
    parser.addoption("--crashes", type=int, help="SIGKILLs of the analytics under load: 2, or 50 if --deep")
    parser.addoption("--kills", type=int, help="SIGKILLs of the alert engine, in the test of them: 8, or 200 if --deep")
    parser.addoption("--deep", action="store_true", help="try for as long as what is promised was tried")


def pytest_configure(config: pytest.Config) -> None:
    """For what is decided where tests are declared."""
    CHOSEN.deep = config.getoption("--deep")
    # How long an example takes depends on what else the machine does.
    hypothesis.settings.register_profile("sojourn", deadline=None, max_examples=examples(25, 200))
    hypothesis.settings.load_profile("sojourn")
    config.pluginmanager.register(Processor())


#: Whose tests take minutes, the longest first: begun last, one of them would be what all of a run waits for.
_LONG = (
    "tests/spark_analytics/",
    "tests/s3/",
    "tests/reference/",
    "tests/faults/",
    "tests/actuators/test_mirrors.py",
    "tests/collectors/transport/",
    "tests/collectors/kafka/",
    "tests/dashboard/test_browser.py",
    "tests/apps/",
    "tests/collectors/rabbitmq/",
    "tests/spark_runtime/",
    "tests/sojourn/test_sql.py",
    "tests/dashboard/",
    "tests/lab/",
    "tests/actuators/",
    "tests/control/",
    "tests/sojourn/",
    "tests/collectors/test_contract.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first; what is for a deep run in one alone."""
    if not CHOSEN.deep:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("deep")])
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    items.sort(key=lambda item: next((rank for rank, at in enumerate(_LONG) if item.nodeid.startswith(at)), len(_LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """See :class:`tests.support.schedule.Schedule`."""
    from tests.support.schedule import Schedule

    return Schedule(config, log)


#: What the process that runs the tests was started with.
_MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def _main_is_ours() -> None:
    """Streamlit's AppTest leaves its script in the place of ``__main__``: what a later test spawns would run it."""
    sys.modules["__main__"] = _MAIN


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SOJOURN_") and name not in KEPT:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def _empty_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("empty") / "lake"
    Lake(root).create()
    return root


@pytest.fixture
def lake(tmp_path: Path, _empty_lake: Path) -> Lake:
    """A fresh lake with all its tables, empty."""
    return Lake(shutil.copytree(_empty_lake, tmp_path / "lake"))


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server that all tests share: name streams for your test, and leave the server running."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A NATS server for one test alone, which may kill it."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka broker that all tests share: name topics and groups for your test, and leave the broker running."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def own_kafka_server(tmp_path: Path) -> Iterator[KafkaServer]:
    """A Kafka broker for one test alone, which may kill it."""
    with KafkaServer(tmp_path / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session that all tests share (seconds to start); leave its settings as they are."""
    from spark_analytics.run import spark_settings
    from spark_analytics.runtime.session import build_session
    from spark_analytics.settings import AnalyzeSettings

    # As the analysis has it; nor is code made for single expressions, whose batches are of a few hundred rows here.
    conf = spark_settings(AnalyzeSettings(driver_memory="1g")) | {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    try:
        session = build_session("tests", quick_start=True, conf=conf)
    except UserError as error:
        require_server(str(error))
    yield session
    session.stop()
