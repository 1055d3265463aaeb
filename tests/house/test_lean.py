"""What a process that collects or alerts must not load: megabytes that it never uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("pandas", "duckdb", "pyspark")
_COLLECTING = "import collectors.run, collectors.nats.factory"
_LEAN = f"from collectors.lean import spare_memory; spare_memory(); {_COLLECTING}; import pyarrow; pyarrow.array([0])"


def loaded(code: str) -> set[str]:
    """The top-level modules that are loaded once ``code`` has run in a fresh process."""
    ending = "; import json, sys; print(json.dumps([name for name in sys.modules if '.' not in name]))"
    run = subprocess.run([sys.executable, "-c", code + ending], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


@pytest.mark.parametrize("code", [_COLLECTING, _LEAN])
def test_collecting_loads_neither_pandas_nor_duckdb_nor_spark(code: str) -> None:
    there = loaded(code)
    assert "pyarrow" in there
    assert there.isdisjoint(HEAVY)


def test_alerting_loads_neither_pandas_nor_spark() -> None:
    there = loaded("from lake.lean import load_arrow_alone; load_arrow_alone(); import alerts.run")
    assert {"pyarrow", "alerts"} <= there
    assert "httpx" in there
    assert there.isdisjoint({"pandas", "pyspark", "rich", "pygments"})


@pytest.mark.parametrize("module", ["lake.reader", "alerts.check", "spark_analytics.sql"])
def test_a_command_loads_no_pandas_and_may_load_it_later(module: str) -> None:
    there = loaded(f"from sojourn.cli.options import part; part({module!r}); import pyarrow; pyarrow.array([0])")
    assert "pyarrow" in there and "pandas" not in there
    assert "pandas" in loaded(f"from sojourn.cli.options import part; part({module!r}); import pandas")
