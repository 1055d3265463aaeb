"""``make fuzz ARGS="--statements N --requests N --seed N"``: exits 1 on any effect or crash."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from lake.store import Lake
from tests.security.fuzz.asking import ask
from tests.security.fuzz.figures import Findings
from tests.security.fuzz.knocking import knock


def run(statements: int, requests: int, seed: int, jobs: int, spark: bool = True) -> Findings:
    """Both halves; ``spark``: let Spark's parser read a part of the accepted statements."""
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="sojourn-fuzz-") as name:
        folder = Path(name)
        if statements:
            Lake(folder / "lake").create()
            share = max(50, statements // 20)
            texts = ask(findings, statements, seed, folder, (), jobs=jobs, parsed=share, run=share // 5)
            if spark and texts:
                _read_by_spark(findings, texts)
        if requests:
            (folder / "served").mkdir()
            knock(findings, requests, seed, folder / "served")
    return findings


def _read_by_spark(findings: Findings, texts: list[str]) -> None:
    from spark_analytics.runtime.session import build_session
    from tests.security.fuzz.spark_reading import compare

    session = build_session("fuzz", quick_start=True, conf={"spark.driver.memory": "1g"})
    try:
        compare(findings, session, texts)
    finally:
        session.stop()


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="as a former run printed it")
    parser.add_argument("--jobs", type=int, default=2, help="processes that check statements")
    asked = parser.parse_args()
    seed = random.randrange(2**32) if asked.seed is None else asked.seed
    began = time.monotonic()
    findings = run(asked.statements, asked.requests, seed, asked.jobs)
    findings.count("seed", seed, "")
    findings.count("crashes_and_effects", len(findings.faults), "")
    findings.count("seconds", time.monotonic() - began, "s")
    findings.print()
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
