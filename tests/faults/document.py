"""``python -m tests.faults.document > docs/brokers/faults.md`` makes every fault and writes down what is said of it.

With names of scenes, as ``kafka``, of those alone.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from tests.faults.faces import Faces, look, sql
from tests.faults.fault import Fault, Row
from tests.faults.places import FAULTS, PLACES, SCENES

_HEAD = """# Faults, and what tells of them

Each of these was made on the real server; the collectors and the analysis ran over it, with a target of five minutes.
Where nothing else is said there are samples alone, and no events. What is shown is what a user sees: `sojourn sql`, the
metrics page (lines of that queue), the built-in rules once the fault has stood for as long as they ask, and the words
of the dashboard's page of the queue. Written by `python -m tests.faults.document`; `tests/faults` holds each face to
what is wanted. What no server can be brought to show within a test of seconds is shown by the tests that are named.

| trouble | shown below | shown by tests |
|---|---|---|
"""


def document(faces: Iterable[tuple[Fault, Faces]]) -> str:
    """docs/brokers/faults.md."""
    return beginning() + "".join(_section(fault, told) for fault, told in faces)


def beginning() -> str:
    """What stands above the faults: what the page is, and the table of all trouble."""
    return _HEAD + "".join(_places())


def _places() -> Iterator[str]:
    for place in PLACES:
        below = "<br>".join(f"[{name.replace('-', ' ')}](#{_anchor(FAULTS[name].words)})" for name in place.faults)
        tests = "<br>".join(f"`{test}`" for test in place.tests)
        yield f"| {place.words} | {below} | {tests} |\n"


def _anchor(heading: str) -> str:
    """GitHub's, of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _section(fault: Fault, told: Faces) -> str:
    rules = "".join(f"| {name} | {level} | {words} |\n" for name, (level, words) in sorted(told.rules(fault).items()))
    table = f"| rule | severity | says |\n|---|---|---|\n{rules}" if rules else "No rule fires.\n"
    kept = [line for line in told.metrics(fault) if line.startswith((*fault.metrics, "sojourn_queue_info"))]
    asked = [(sql(fault), told.rows(fault))] + ([(fault.samples, told.samples(fault))] if fault.samples else [])
    text = f"\n## {fault.words}\n\n"
    for statement, rows in asked:
        text += f"```sql\n{statement}\n```\n\n```text\n{shown(rows)}\n```\n\n"
    text += "```text\n" + "\n".join(kept) + "\n```\n\n" if kept else ""
    return f"{text}{table}\nThe page: {shorten(told.page(fault), 600, placeholder=' …')}\n"


def shown(rows: list[Row]) -> str:
    """A line a row."""
    return "\n".join(", ".join(f"{name} = {_value(value)}" for name, value in row.items()) for row in rows)


def _value(value: Any) -> str:
    return "null" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _told(wanted: list[str]) -> Iterator[tuple[Fault, Faces]]:
    with tempfile.TemporaryDirectory() as folder:
        for scene in SCENES:
            if wanted and scene.name not in wanted:
                continue
            began = time.monotonic()
            faces = look(scene, Path(folder) / scene.name)
            print(f"{scene.name}: seen after {time.monotonic() - began:.0f} s", file=sys.stderr)
            for fault in scene.faults:
                yield fault, faces


def main() -> None:
    """Make every fault, and write the page."""
    from spark_analytics.runtime.session import build_session

    session = build_session("faults", quick_start=True, conf={"spark.driver.memory": "1g"})
    try:
        text = document(_told(sys.argv[1:]))
    finally:
        session.stop()
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
