"""Each fault of a broker is told by every face: SQL, metrics, rules and page; and what is no fault is told by none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.document import beginning, shown
from tests.faults.faces import Faces, look, sql
from tests.faults.fault import Fault, Scene
from tests.faults.places import FAULTS, PLACES, SCENES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Callable[[Scene], Faces]:
    """The faces of a scene: its server is started once, whichever of its faults are asked for."""
    return cache(lambda scene: look(scene, tmp_path_factory.mktemp(scene.name)))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "fault"),
    [pytest.param(scene, fault, id=fault.name) for scene in SCENES for fault in scene.faults],
)
def test_every_face_tells_of_the_fault(seen: Callable[[Scene], Faces], scene: Scene, fault: Fault) -> None:
    faces = seen(scene)
    rows = faces.rows(fault)
    assert any(fault.says.items() <= row.items() for row in rows), rows
    assert faces.rules(fault).keys() == fault.rules
    metrics = faces.metrics(fault)
    for start in fault.metrics:
        assert any(line.startswith(start) for line in metrics), (start, metrics)
    for start in fault.absent:
        assert not any(line.startswith(start) for line in metrics), (start, metrics)
    page = faces.page(fault)
    for words in fault.page:
        assert words in page, page
    samples = shown(faces.samples(fault))
    for words in fault.told:
        assert words in samples, samples


def test_every_scenario_has_its_place_in_the_table_and_every_test_that_is_named_exists() -> None:
    assert {name for place in PLACES for name in place.faults} == FAULTS.keys()
    for place in PLACES:
        assert place.faults or place.tests
        for test in place.tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_the_page_of_faults_is_the_one_that_is_written_and_quotes_what_each_face_is_held_to() -> None:
    page = (ROOT / "docs" / "brokers" / "faults.md").read_text(encoding="utf-8")
    head, *sections = page.split("\n## ")
    assert head == beginning().rstrip("\n") + "\n", "python -m tests.faults.document > docs/brokers/faults.md"
    faults = [fault for scene in SCENES for fault in scene.faults]
    assert [section.partition("\n")[0] for section in sections] == [fault.words for fault in faults]
    for fault, section in zip(faults, sections, strict=True):
        rules = section.partition("| rule | severity | says |\n|---|---|---|\n")[2].partition("\n\n")[0]
        assert {line.split(" | ")[0].removeprefix("| ") for line in rules.splitlines()} == fault.rules, fault.name
        quoted, rest = section.partition("\nThe page: ")[::2]
        assert sql(fault) in quoted and fault.samples in quoted, fault.name
        for start in fault.metrics:
            assert f"\n{start}" in quoted, (fault.name, start)
        for words in fault.told:
            assert words in quoted, (fault.name, words)
        if "…" not in rest:
            assert all(words in rest for words in fault.page), fault.name
