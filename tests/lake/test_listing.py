"""A log that is read while others write to it is whole, whatever a listing of its folder lacked."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake import listing
from lake.listing import settled
from lake.snapshot import Snapshot
from lake.store import Lake
from lake.tables import TABLES
from tests.support.waiting import PATIENCE

#: A folder of more entries than one call of the system lists, and commits after that, 5 ms apart.
LONG, COMMITS = 1_500, 1_800
#: As `lake.appending` commits: an entry that appears whole, then its checksum.
WRITER = """
import json, os, sys, time
from pathlib import Path
from lake.checksum import Checksums
table, long, commits = Path(sys.argv[1]), *map(int, sys.argv[2:])
log, checksums = table / "_delta_log", Checksums(table)
for version in range(1, commits + 1):
    text = json.dumps({"commitInfo": {"timestamp": version, "operation": "WRITE"}})
    (log / ".entry").write_text(text)
    os.rename(log / ".entry", log / f"{version:020d}.json")
    if version >= long:
        checksums.write(version, text)
        time.sleep(0.005)
    if version == long:
        print("ready", flush=True)
"""


def test_commits_of_others_are_followed_without_an_error(tmp_path: Path) -> None:
    Lake(tmp_path).ensure("gaps")
    snapshot = Snapshot(TABLES["gaps"], tmp_path)
    command = [sys.executable, "-c", WRITER, str(snapshot.path), str(LONG), str(COMMITS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        deadline = time.monotonic() + PATIENCE * 30
        while snapshot.version() < COMMITS:
            assert time.monotonic() < deadline
    assert writer.returncode == 0


def test_a_log_that_stays_damaged_is_an_error_and_a_table_that_is_not_there_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "PAUSES_SECONDS", (0.0, 0.0))
    tried = []

    def look(error: Exception) -> None:
        tried.append(error)
        raise error

    for error, times in ((DeltaError("damaged"), 3), (TableNotFoundError("none"), 1)):
        tried.clear()
        with pytest.raises(type(error)):
            settled(lambda error=error: look(error))
        assert len(tried) == times
