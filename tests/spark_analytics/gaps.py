"""Lakes with history that was deferred, opened and filled step by step, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.store import Lake
from lake.tables import MARKS
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import EVENTS
from spark_analytics.batches.tenants import Tenants
from spark_analytics.catching_up.filling import Filling, Process
from spark_analytics.catching_up.gaps import Gap, Gaps
from spark_analytics.catching_up.log import DataFile, data_files
from spark_analytics.catching_up.opening import open_gap
from spark_analytics.catching_up.places import Place
from spark_analytics.catching_up.turns import Turns
from spark_analytics.gold import Gold, checkpoint_path
from tests.reference.partials import marks_of, partials_of
from tests.spark_analytics.events import Row, bronze, event
from tests.spark_analytics.test_transforms import assert_same_partials, counted

NAME = "message_events"
QUERY = "the first query"
#: Smaller than any file: each is a piece of its own.
TINY = 1


def life(number: int) -> list[Row]:
    """Two messages, one of which fails: a commit's events."""
    name: Row = {"message_id": str(number), "tenant": f"t{number % 3}", "enqueued": number}
    other = name | {"message_id": f"{number}b"}
    rows = [
        event("enqueued", number, **name),
        event("received", number + 0.5, attempt=1, **name),
        event("completed", number + 0.7, attempt=1, processing_seconds=0.2, **name),
        event("received", number + 0.5, attempt=1, **other),
        event("failed", number + 0.6, attempt=1, processing_seconds=0.1, **other),
    ]
    return [row | {"event_id": f"{number}-{place}"} for place, row in enumerate(rows)]


def write(lake: Lake, *numbers: int) -> None:
    for number in numbers:
        lake.append(NAME, bronze(life(number)))


def process_for(lake: Lake) -> Callable[[Gap], Process]:
    """What the job gives to the filling, without executors."""

    def process(gap: Gap) -> Process:
        own = Lake(lake.root)
        engine = Engine(
            EVENTS,
            Gold(own.root, gap.gap_id, EVENTS.writes),
            threads=1,
            driver_bytes=1 << 30,
            tenants=Tenants(own, 1000),
            attempts=Attempts(checkpoint_path(own.root, gap.attempts)),
        )
        return lambda number, files: engine.process(number, _no_executors, files)

    return process


def _no_executors() -> Any:
    raise AssertionError("these files are few")


def offset(lake: Lake, place: Place, *, begins: bool = False) -> str:
    """What Spark 4.2 with Delta 4.4 notes of the end of a batch."""
    source = {
        "sourceVersion": 1,
        "reservoirId": str(lake.ensure(NAME).metadata().id),
        "reservoirVersion": place.version,
        "index": place.index,
        "isStartingVersion": begins,
    }
    return "v1\n{}\n" + json.dumps(source)


def note(checkpoint: Path, kind: str, batch: int, text: str) -> None:
    (checkpoint / kind).mkdir(parents=True, exist_ok=True)
    (checkpoint / kind / str(batch)).write_text(text, encoding="utf-8")


def begun(lake: Lake, checkpoint: Path, query_id: str, place: Place, *, finished: bool = True, batch: int = 0) -> None:
    """A streaming query that planned ``batch`` until ``place``, and finished it or was killed before."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query_id}), encoding="utf-8")
    note(checkpoint, "offsets", batch, offset(lake, place))
    if finished:
        note(checkpoint, "commits", batch, "v1\n{}")


def analysed(lake: Lake, commits: int) -> None:
    """The first so many commits are in gold, by the first query."""
    write(lake, *range(commits))
    files = tuple(str(uri) for uri in lake.ensure(NAME).file_uris())
    gap = Gap(QUERY, "", 0, 0, False, None, None, "events-attempts", 0, Place(0))
    process_for(lake)(gap)(0, Files(tuple(f"file://{file}" for file in files), 1))
    begun(lake, checkpoint_path(lake.root, "events"), QUERY, Place(commits + 1))


def start(lake: Lake, most_bytes: int = TINY) -> Gap | None:
    """What the job does before it reads."""
    own = Lake(lake.root)
    gaps = Gaps(own)
    gaps.check(EVENTS.writes)
    opened = open_gap(own, gaps, EVENTS.writes, most_bytes) if most_bytes else None
    gaps.tell()
    return opened


def fill(lake: Lake, piece_bytes: int = TINY, process: Callable[[Gap], Process] | None = None) -> None:
    """Fill all gaps, while the live query has planned its first batch and does nothing."""
    live = Gaps(Lake(lake.root)).live()
    if live.starts is not None and not live.checkpoint.exists():
        begun(lake, live.checkpoint, f"from {live.starts}", Place(live.starts + 1), finished=False)
    filling = Filling(lake.root, process or process_for(lake), Turns(), piece_bytes)
    filling.start()
    while filling.running():
        pass
    filling.stop()
    if filling.error is not None:
        raise filling.error


def before_live(lake: Lake, written: int) -> list[Row]:
    """The events of commits 0 until ``written`` that the live query does not read."""
    starts = Gaps(lake).live().starts
    assert starts is not None
    return [row for number in range(min(written, starts - 1)) for row in life(number)]


def assert_gold_is_of(lake: Lake, events: list[Row]) -> None:
    assert_same_partials(lake.read("partials").to_pylist(), partials_of(events))
    expected = pa.Table.from_pylist(marks_of(events), MARKS.schema).to_pylist()
    assert counted(lake.read("marks").to_pylist()) == counted(expected)


def gap_rows(lake: Lake) -> Counter[tuple[str, bool]]:
    rows = lake.read("gaps", columns=["gap_id", "open"]).to_pylist()
    return Counter((row["gap_id"], row["open"]) for row in rows)


def gaps_files(lake: Lake, begins: Place, until: int) -> list[DataFile]:
    return list(data_files(lake.path(NAME), begins, until))


def opened(lake: Lake) -> Gap:
    analysed(lake, 2)
    write(lake, *range(2, 8))
    start(lake)
    [gap] = Gaps(lake).open()
    return gap
