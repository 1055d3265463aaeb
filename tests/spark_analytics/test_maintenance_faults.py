"""Maintenance that is killed, runs twice at once, or beside writers: counts always balance."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake.store import Lake
from lake.tables import MARKS
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.merging import add_actions
from spark_analytics.maintenance.routine import run_maintenance
from tests.reference.partials import marks_of
from tests.spark_analytics.test_maintenance import moved, without_history
from tests.spark_analytics.test_rollup import log_of, table_of, totals
from tests.support.waiting import PATIENCE

Row = dict[str, Any]
HOME = Path(__file__).parents[2]

KILLS = 4
HOURS = timedelta(hours=7)
RETENTION = Retention(timedelta(minutes=5), timedelta(hours=2), timedelta(days=1), timedelta(hours=3))

#: Rounds over and over, as the clock of the data moves on, without the lock that keeps two apart.
_PROGRAM = """
import sys
from datetime import datetime, timedelta
from lake.store import Lake
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.routine import run_maintenance
lake = Lake(sys.argv[1])
print("ready", flush=True)
retention = Retention(*(timedelta(hours=float(word)) for word in sys.argv[4:]))
for _ in range(int(sys.argv[2])):
    run_maintenance(lake, retention, now=datetime.fromisoformat(sys.argv[3]))
    print("kept", flush=True)
"""


def maintenance(lake: Lake, now: str, rounds: int = 1, kept_days: int = 1) -> subprocess.Popen[str]:
    """A process that maintains the lake, hours for ``kept_days``; it has begun when this returns."""
    kept = (RETENTION.seconds_for, RETENTION.minutes_for, timedelta(days=kept_days), RETENTION.marks_for)
    hours = [str(each / timedelta(hours=1)) for each in kept]
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(lake.root), str(rounds), now, *hours],
        env={**os.environ, "PYTHONPATH": str(HOME)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def day(number: int) -> list[Row]:
    """Events of different messages for each ``number``, :data:`HOURS` apart."""
    events, _ = log_of(300 + number, messages=50, seconds=300)
    for row in events:
        row.pop("event_id", None)
        row["message_id"] = f"{number}-{row['message_id']}"
    events = list({repr(sorted(row.items())): row for row in events}.values())
    return moved(events, HOURS * number)


def write(lake: Lake, number: int, pieces: int = 5) -> list[Row]:
    events = day(number)
    step = -(-len(events) // pieces)
    for piece in range(pieces):
        part = events[piece * step : (piece + 1) * step]
        lake.append("partials", table_of(part), app_id="stream", version=number * pieces + piece)
        lake.append("marks", pa.Table.from_pylist(marks_of(part), MARKS.schema))
    return events


def newest(events: list[Row]) -> str:
    moment: str = max(event["occurred_at"] for event in events).isoformat()
    return moment


def assert_balanced(lake: Lake, events: list[Row]) -> None:
    assert without_history(totals(lake.read("partials"))) == without_history(totals(table_of(events)))


@pytest.mark.slow
def test_killed_at_any_instant_it_loses_and_doubles_nothing_and_the_next_round_finishes(tmp_path: Path) -> None:
    rng = random.Random()
    lake = Lake(tmp_path)
    everything: list[Row] = []
    interrupted = 0
    for number in range(KILLS):
        everything += write(lake, number)
        process = maintenance(lake, newest(everything))
        time.sleep(rng.random() * 0.4)  # a round takes about as long
        interrupted += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert_balanced(lake, everything)
    assert interrupted > 0
    now = max(event["occurred_at"] for event in everything)
    run_maintenance(lake, RETENTION, now=now)
    assert_balanced(lake, everything)
    assert add_actions(lake, "partials").num_rows <= 8
    version = lake.version("partials")
    run_maintenance(lake, RETENTION, now=now)
    assert lake.version("partials") == version, "there was something left to do"
    assert lake.committed("partials", "stream") == KILLS * 5 - 1


@pytest.mark.slow
def test_two_at_once_and_a_writer_beside_them_agree_on_every_sum(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    everything: list[Row] = []
    for number in range(4):
        everything += write(lake, number)
    written: list[Row] = []
    done = threading.Event()

    def stream() -> None:
        own = Lake(tmp_path)
        for number in range(4, 8):
            written.extend(write(own, number))
        done.set()

    writer = threading.Thread(target=stream)
    writer.start()
    while not done.is_set():
        pair = [maintenance(lake, newest(everything), rounds=3) for _ in range(2)]
        assert [process.wait(timeout=100 * PATIENCE) for process in pair] == [0, 0]
    writer.join()
    everything += written
    assert_balanced(lake, everything)
    run_maintenance(lake, RETENTION, now=max(event["occurred_at"] for event in everything))
    assert_balanced(lake, everything)
    assert Lake(tmp_path).committed("partials", "stream") == 8 * 5 - 1
