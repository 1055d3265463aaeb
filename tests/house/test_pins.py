"""Versions that only work together, and lock files that can be trusted."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from spark_analytics.runtime.coordinates import DECLARED, KAFKA, read_coordinates, read_jars

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-build.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Pairs of pyspark and Delta that were run. Delta breaks even on Spark's patch releases (delta-io/delta#6867): run the
#: whole suite and the benchmarks before adding one.
PAIRS = {("4.2.0", "4.4.0")}


def locked(name: str) -> dict[str, list[Requirement]]:
    """The requirements of a lock file by package; a package may stand in it once for each range of Pythons."""
    lines = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    found: dict[str, list[Requirement]] = {}
    for line in lines:
        if line and not line.lstrip().startswith("#"):
            requirement = Requirement(line.split(" --hash")[0])
            found.setdefault(requirement.name, []).append(requirement)
    return found


def declared() -> list[Requirement]:
    """What pyproject.toml asks for, over all extras, without the extras' references to each other."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    requirements = [Requirement(text) for texts in lists for text in texts]
    return [requirement for requirement in requirements if requirement.name != "sojourn"]


def test_pyspark_and_delta_are_a_pair_that_was_run() -> None:
    coordinates = read_coordinates(DECLARED)
    delta = {jar.artifact: jar.version for jar in coordinates.jars if jar.group == "io.delta"}
    spark_series = ".".join(coordinates.spark.split(".")[:2])
    assert delta == dict.fromkeys((f"delta-spark_{spark_series}_2.13", "delta-storage"), delta["delta-storage"])
    assert (coordinates.spark, delta["delta-storage"]) in PAIRS
    assert [str(one.specifier) for one in locked("requirements.lock")["pyspark"]] == [f"=={coordinates.spark}"]
    assert {str(one.specifier) for one in declared() if one.name == "pyspark"} == {f"=={coordinates.spark}"}
    assert version("pyspark") == coordinates.spark, "the environment is not the lock's: run make setup"


def test_sparks_kafka_source_is_of_the_same_spark() -> None:
    versions = {jar.artifact: jar.version for jar in read_jars(KAFKA)}
    coordinates = read_coordinates(DECLARED)
    assert versions["spark-sql-kafka-0-10_2.13"] == coordinates.spark
    assert not versions.keys() & {jar.artifact for jar in coordinates.jars}


def test_the_lock_satisfies_everything_that_is_declared() -> None:
    held = locked("requirements.lock")
    for wanted in declared():
        name = wanted.name.lower().replace("_", "-")
        assert name in held, f"{name} is not locked: run make lock"
        for one in held[name]:
            (pin,) = one.specifier
            assert pin.operator == "=="
            assert wanted.specifier.contains(Version(pin.version)), f"{one} does not satisfy {wanted}: run make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes_and_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"(?m)^\s*-(?!-hash=sha256:[0-9a-f]{64}( \\)?$)", text), "options other than hashes"
    entries = re.findall(r"(?m)^\w.*(?:\n {4}--hash=\S+(?: \\)?)+", text)
    assert len(entries) == sum(map(len, locked(name).values()))
