"""Each fault of a broker is told by every face: SQL, metrics, rules and page; and what is no fault is told by none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.faces import Faces, seen
from tests.faults.faults import FAULTS, Fault

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_face_tells_of_the_fault(fault: Fault, tmp_path: Path, spark: SparkSession) -> None:
    told: Faces = seen(fault, tmp_path)
    assert any(all(name in row for name in fault.columns) for row in told.rows), "sojourn sql"
    assert told.rules.keys() == fault.rules
    for start in fault.metrics:
        assert any(line.startswith(start) for line in told.metrics), (start, told.metrics)
    for start in fault.absent:
        assert not any(line.startswith(start) for line in told.metrics), (start, told.metrics)
    for words in fault.page:
        assert words in told.page, told.page
