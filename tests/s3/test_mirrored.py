"""The mirror of a table's log that Spark follows: the same table, and each entry is fetched once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lake.checksum import checksum
from lake.log import log_entry
from lake.remote import Remote
from lake.store import Lake
from spark_analytics import mirrored
from spark_analytics.maintenance.vacuum import shorten_log
from spark_analytics.mirrored import MirroredLog
from tests.lake.test_appending import rejected
from tests.support.s3 import CREDENTIALS, S3Server

TABLE = "rejected_records"


@pytest.fixture
def remote(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    lake = Lake(server.home(tmp_path / "home", tmp_path.name))
    lake.ensure(TABLE)
    return lake


def mirror_of(lake: Lake, folder: Path) -> MirroredLog:
    place = lake.path(TABLE)
    assert isinstance(place, Remote) and place.store.creator is not None
    return MirroredLog(place, place.store.creator, folder)


def write(lake: Lake, *names: str) -> None:
    for name in names:
        lake.append(TABLE, rejected(name))


def versions(mirror: MirroredLog) -> list[int]:
    return sorted(int(path.stem) for path in (mirror.folder / "_delta_log").glob("*.json"))


def assert_same(mirror: MirroredLog, lake: Lake) -> None:
    """Another reader of Delta finds the same files at the same version below the mirror."""
    table, theirs = DeltaTable(str(mirror.folder)), lake.ensure(TABLE)
    assert (table.version(), table.metadata().id) == (theirs.version(), theirs.metadata().id)
    names = ({uri.rpartition("/")[2] for uri in one.file_uris()} for one in (table, theirs))
    assert next(names) == next(names)
    assert checksum(mirror.folder, table.version()).exists(), "or Spark runs a query to know the table"


def test_each_entry_is_fetched_once_and_the_table_is_the_same(server: S3Server, remote: Lake, tmp_path: Path) -> None:
    write(remote, "a", "b")
    mirror = mirror_of(remote, tmp_path / "mirror")
    mirror.begin(None)
    assert_same(mirror, remote)
    write(remote, "c", "d")
    before = len(server.requests())
    mirror.follow()
    asked = [one for one in server.requests()[before:] if f"/{tmp_path.name}/" in one.path]
    assert sorted((one.method, one.status) for one in asked) == [("GET", "200"), ("GET", "200"), ("GET", "404")]
    assert_same(mirror, remote)
    mirror.close()
    assert not mirror.folder.exists()


def test_who_waits_for_entries_gets_on_where_they_come_as_fast_as_they_are_fetched(
    remote: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = mirror_of(remote, tmp_path / "mirror")
    mirror.begin(None)
    write(remote, *map(str, range(6)))
    fetched = MirroredLog._fetched

    def fetched_while_others_commit(self: MirroredLog, name: str) -> bytes | None:
        write(Lake(remote.root), name)
        return fetched(self, name)

    monkeypatch.setattr(MirroredLog, "_fetched", fetched_while_others_commit)
    mirror.follow()
    assert versions(mirror)[-1] >= 1
    assert versions(mirror) == list(range(len(versions(mirror))))


def test_what_the_stores_log_has_no_more_goes_and_checkpoints_come(
    remote: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrored, "LISTED_SECONDS", 0.0)
    mirror = mirror_of(remote, tmp_path / "mirror")
    mirror.begin(None)
    write(remote, "a", "b", "c")
    mirror.follow()
    assert versions(mirror) == [0, 1, 2, 3]
    remote.ensure(TABLE).create_checkpoint()
    write(remote, "d")
    shorten_log(remote, TABLE, timedelta(0), datetime.now(UTC) + timedelta(seconds=1))
    mirror.follow()
    assert versions(mirror) == [3, 4]
    assert_same(mirror, remote)


def test_a_mirror_reaches_back_as_far_as_its_stream_and_no_further(remote: Lake, tmp_path: Path) -> None:
    write(remote, "a", "b", "c")
    remote.ensure(TABLE).create_checkpoint()
    write(remote, "d", "e")
    mirror = mirror_of(remote, tmp_path / "mirror")
    mirror.begin(2)
    assert versions(mirror) == [0, 1, 2, 3, 4, 5], "no checkpoint is as old"
    assert_same(mirror, remote)
    mirror.begin(4)
    assert versions(mirror) == [3, 4, 5]
    assert_same(mirror, remote)


def test_a_log_that_was_cleaned_up_ahead_of_the_mirror_has_the_same_gap_there(
    remote: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrored, "LISTED_SECONDS", 0.0)
    mirror = mirror_of(remote, tmp_path / "mirror")
    mirror.begin(None)
    write(remote, "a", "b", "c")
    place = remote.path(TABLE)
    log_entry(place, 1).unlink()
    mirror.follow()
    assert versions(mirror) == [0, 2, 3], "for Spark to say what is lost"
