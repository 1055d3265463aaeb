"""Checksum files: they say of every version what its log says, or they are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from lake.checksum import KEPT, Checksums
from lake.store import Lake
from tests.lake.test_store import rejected


def newest(root: Path) -> tuple[int, dict[str, object]]:
    path = max((root / "bronze/rejected_records/_delta_log").glob("*.crc"))
    return int(path.stem), json.loads(path.read_text())


def counted(lake: Lake) -> tuple[int, int]:
    sizes = pa.table(lake.ensure("rejected_records").get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return len(sizes), sum(sizes)


def test_a_checksum_counts_the_files_of_its_version_through_compaction_and_restarts(tmp_path: Path) -> None:
    for run in range(3):
        lake = Lake(tmp_path)
        for number in range(5):
            lake.append("rejected_records", rejected("a"), app_id="tap", version=run * 5 + number)
        if run == 1:
            lake.compact("rejected_records")
        version, checksum = newest(tmp_path)
        assert version == lake.version("rejected_records")
        assert (checksum["numFiles"], checksum["tableSizeBytes"]) == counted(lake)
    log = tmp_path / "bronze/rejected_records/_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    assert checksum["metadata"] == next(action["metaData"] for action in first if "metaData" in action)
    assert checksum["protocol"] == next(action["protocol"] for action in first if "protocol" in action)


def test_another_writers_commits_are_counted_too(tmp_path: Path) -> None:
    ours, theirs = Lake(tmp_path), Lake(tmp_path)
    ours.append("rejected_records", rejected("a"))
    theirs.append("rejected_records", rejected("b", "c"))
    ours.append("rejected_records", rejected("d"))
    assert (newest(tmp_path)[1]["numFiles"], newest(tmp_path)[1]["tableSizeBytes"]) == counted(ours)


def test_one_that_a_crash_of_the_machine_left_empty_is_passed_over(tmp_path: Path) -> None:
    for number in range(3):
        Lake(tmp_path).append("rejected_records", rejected(str(number)))
    torn = max((tmp_path / "bronze/rejected_records/_delta_log").glob("*.crc"))
    for text in ("", '{"tableSizeBytes": 12'):
        torn.write_text(text)
        lake = Lake(tmp_path)
        lake.append("rejected_records", rejected("d"))
        version, told = newest(tmp_path)
        assert version == lake.version("rejected_records") > int(torn.stem)
        assert (told["numFiles"], told["tableSizeBytes"]) == counted(lake)
        torn = max(torn.parent.glob("*.crc"))


def test_old_checksums_are_removed(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(KEPT + 15):
        lake.append("rejected_records", rejected(str(number)))
    assert len(list((tmp_path / "bronze/rejected_records/_delta_log").glob("*.crc"))) == KEPT


def test_a_log_that_cannot_be_followed_gets_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("rejected_records", rejected("a"))
    log = tmp_path / "bronze/rejected_records/_delta_log"
    for path in log.glob("*.crc"):
        path.unlink()
    (log / f"{0:020d}.json").unlink()
    Checksums(tmp_path / "bronze/rejected_records").write(1)
    assert not list(log.glob("*.crc"))
