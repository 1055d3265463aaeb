"""A lake in an object store: nothing that is committed is lost or there twice, whoever is killed or cut off."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lake import appending, conditional
from lake.address import Address
from lake.checksum import KEPT
from lake.creating import Creator, creator_of
from lake.dataset import dataset
from lake.errors import UserError
from lake.log import log_entry
from lake.reader import Reader
from lake.store import Lake
from spark_analytics.batches.read import fetched, pieces, rows_in
from tests.lake.test_appending import rejected
from tests.support.s3 import BUCKET, CREDENTIALS, Network, S3Server
from tests.support.waiting import wait_until

HOME = Path(__file__).parents[2]
WRITER = """
import sys, time
from tests.lake.test_appending import rejected
from lake.errors import SojournError
from lake.store import Lake
lake, name, most = Lake(sys.argv[1]), sys.argv[2], int(sys.argv[3])
number = None
while True:
    try:
        if number is None:
            number = lake.committed("rejected_records", name)
            number = 0 if number is None else number + 1
        if number == most:
            break
        lake.append("rejected_records", rejected(f"{name}-{number}"), app_id=name, version=number)
        number += 1
    except SojournError as error:
        print(error, flush=True)
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3"), noting=True) as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def home(server: S3Server, tmp_path: Path) -> Path:
    return server.home(tmp_path / "home", tmp_path.name)


@pytest.fixture
def remote(home: Path) -> Lake:
    """A lake in the store with one of its tables."""
    fresh = Lake(home)
    fresh.ensure("rejected_records")
    return fresh


def reasons(lake: Lake) -> list[str]:
    return sorted(Lake(lake.root).read("rejected_records").column("reason").to_pylist())


def start(home: Path, name: str, most: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(home), name, str(most)], cwd=HOME)


def test_what_is_appended_can_be_read_by_others(remote: Lake) -> None:
    assert remote.append("rejected_records", rejected("one", "two"), app_id="tap", version=4)
    assert not remote.append("rejected_records", rejected("again"), app_id="tap", version=4)
    assert not Lake(remote.root).append("rejected_records", rejected("again"), app_id="tap", version=3)
    other = Lake(remote.root)
    assert other.exists("rejected_records") and not other.exists("partials")
    assert reasons(other) == ["one", "two"]
    assert other.committed("rejected_records", "tap") == 4 and other.committed("rejected_records", "no") is None
    assert [path.name for path in remote.root.iterdir()] == ["address.json"], "no table is on the disk"


def test_a_reader_follows_commits(remote: Lake) -> None:
    with Reader(remote.root) as reader:
        before = reader.token("rejected_records")
        remote.append("rejected_records", rejected("one"))
        assert reader.query("SELECT reason FROM rejected_records").column("reason").to_pylist() == ["one"]
        remote.append("rejected_records", rejected("two"))
        assert reader.token("rejected_records") != before
        assert reader.query("SELECT COUNT(*) AS n FROM rejected_records").column("n").to_pylist() == [2]


def test_arrow_reads_by_its_own_file_system(remote: Lake) -> None:
    remote.append("rejected_records", rejected("one"))
    files = dataset(remote.ensure("rejected_records"))
    assert files.filesystem.base_fs.type_name == "s3" and files.count_rows() == 1


def test_processes_that_append_at_once_lose_nothing(remote: Lake) -> None:
    writers = [start(remote.root, name, 6) for name in "ab"]
    wait_until(lambda: all(writer.poll() is not None for writer in writers), "the writers to end", seconds=60)
    assert reasons(remote) == sorted(f"{name}-{number}" for name in "ab" for number in range(6))


def requests_of(server: S3Server, folder: str) -> list[str]:
    return [f"{one.method} {one.path.rpartition('.')[2]}" for one in server.requests() if f"/{folder}/" in one.path]


def test_a_commit_is_two_puts_and_a_checksum(server: S3Server, remote: Lake, tmp_path: Path) -> None:
    """Nothing is listed and nothing read: each request is paid for, and waited for."""
    remote.append("rejected_records", rejected("first"), app_id="tap", version=0)
    before = len(requests_of(server, tmp_path.name))
    remote.append("rejected_records", rejected("second"), app_id="tap", version=1)
    assert requests_of(server, tmp_path.name)[before:] == ["PUT parquet", "PUT json", "PUT crc"]
    assert remote.committed("rejected_records", "tap", look=False) == 1
    for number in range(2, 2 * KEPT + 2):
        remote.append("rejected_records", rejected(str(number)), app_id="tap", version=number)
    checksums = list((remote.path("rejected_records") / "_delta_log").glob("*.crc"))
    assert KEPT <= len(checksums) <= 2 * KEPT, "older ones go"


def test_a_batch_is_fetched_by_one_request_a_file(server: S3Server, remote: Lake, tmp_path: Path) -> None:
    for number in range(3):
        remote.append("rejected_records", rejected(str(number)))
    table = remote.ensure("rejected_records")
    files = [remote.path("rejected_records").at(uri) for uri in table.file_uris()]  # type: ignore[union-attr]
    before = len(requests_of(server, tmp_path.name))
    sources = fetched(files, 1)
    schema = pa.schema({"reason": pa.string()})
    assert rows_in(sources) == 3
    told = [reason for piece in pieces(sources, schema) for reason in piece.column("reason").to_pylist()]
    assert sorted(told) == ["0", "1", "2"]
    assert requests_of(server, tmp_path.name)[before:] == ["GET parquet"] * 3
    assert fetched(files, 1 << 40) == files, "too much to hold"
    files[0].unlink()
    with pytest.raises(UserError, match="damaged or gone"):
        fetched(files, 1)


class Unanswered:
    """A client whose next put is done, or not, but for which no answer comes."""

    def __init__(self, creator: Creator, *, done: bool) -> None:
        self._creator = creator
        self._done = done
        self.lost = 1

    def put(self, key: str, text: str) -> bool:
        if self.lost and self._done:
            self._creator.put(key, text)
        if self.lost:
            self.lost -= 1
            raise OSError("connection reset")
        return self._creator.put(key, text)


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("version", [None, 1])
def test_a_commit_of_which_the_answer_is_lost_counts_once(remote: Lake, version: int | None, *, done: bool) -> None:
    remote.append("rejected_records", rejected("before"))
    appender = remote._appenders["rejected_records"]
    assert isinstance(appender, conditional.RemoteAppender)
    appender._creator = Unanswered(appender._creator, done=done)  # type: ignore[assignment]
    assert remote.append("rejected_records", rejected("once"), app_id=version and "tap", version=version)
    assert remote.append("rejected_records", rejected("behind"), app_id=version and "tap", version=version and 2)
    assert reasons(remote) == ["before", "behind", "once"]


def test_what_deltalake_commits_is_looked_for_too_where_the_answer_is_lost(
    remote: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that asks more of its writers than entries of ours give."""
    remote.ensure("rejected_records").alter.add_constraint({"counted": "count > 0"})
    commit = conditional.DeltaTable.create_write_transaction
    lost: list[str] = []

    def unanswered(*arguments: object, **options: object) -> None:
        commit(*arguments, **options)
        if not lost:
            lost.append("answer")
            raise OSError("connection reset")

    monkeypatch.setattr(conditional.DeltaTable, "create_write_transaction", unanswered)
    assert remote.append("rejected_records", rejected("once")), "it is found in the log"
    lost.clear()
    assert remote.append("rejected_records", rejected("numbered"), app_id="tap", version=1)
    assert not remote.append("rejected_records", rejected("again"), app_id="tap", version=1)
    assert reasons(remote) == ["numbered", "once"]


def test_a_log_that_was_cleaned_up_meanwhile_is_not_written_into_its_past(
    remote: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.append("rejected_records", rejected("a"))
    other = Lake(remote.root)
    for number in range(3):
        other.append("rejected_records", rejected(str(number)))
    table = other.ensure("rejected_records")
    table.create_checkpoint()
    for version in range(table.version()):
        log_entry(remote.path("rejected_records"), version).unlink()
    monkeypatch.setattr(appending, "TRUSTED_SECONDS", -1.0)  # as if so long had passed
    assert remote.append("rejected_records", rejected("z"))
    assert log_entry(remote.path("rejected_records"), table.version() + 1).exists()
    assert reasons(remote) == ["0", "1", "2", "a", "z"]


def test_an_option_that_our_client_does_not_know_leaves_commits_to_deltalake(server: S3Server, tmp_path: Path) -> None:
    options = {"aws_endpoint_url": server.url, "aws_sse_bucket_key_enabled": "false"}
    Address(path=f"s3://{BUCKET}/{tmp_path.name}", storage_options=options).keep(tmp_path / "home")
    lake = Lake(tmp_path / "home")
    assert lake.append("rejected_records", rejected("one"), app_id="tap", version=1)
    assert not lake.append("rejected_records", rejected("one"), app_id="tap", version=1)
    assert lake.committed("rejected_records", "tap") == 1 and reasons(lake) == ["one"]
    assert creator_of("gs://bucket", {}) is None


def test_a_writer_that_was_overtaken_appends_behind(remote: Lake) -> None:
    other = Lake(remote.root)
    for number in range(3):
        remote.append("rejected_records", rejected(f"mine {number}"))
        other.append("rejected_records", rejected(f"theirs {number}"))
    assert len(reasons(remote)) == 6


def test_two_compactions_at_once_double_no_row(remote: Lake) -> None:
    """Locks are of one machine; a store is shared by several. Of two at once deltalake lets both succeed."""
    for number in range(6):
        remote.append("rejected_records", rejected(f"{number}"))
    other = Lake(remote.root).ensure("rejected_records")
    with conditional.lease(other, "sojourn-compact", 900):
        remote.compact("rejected_records")
        assert len(remote.ensure("rejected_records").file_uris()) == 6, "deferred"
        with pytest.raises(UserError, match="at work elsewhere"), conditional.lease(other, "sojourn-compact", 900):
            pass
    remote.compact("rejected_records")
    assert len(remote.ensure("rejected_records").file_uris()) == 1
    assert reasons(remote) == sorted(map(str, range(6)))


def test_a_lease_that_nobody_gave_back_ends(remote: Lake) -> None:
    table = remote.ensure("rejected_records")
    died = conditional.lease(table, "somebody", 900)
    died.__enter__()
    with conditional.lease(table, "somebody", 0):
        pass
    with conditional.lease(Lake(remote.root).ensure("rejected_records"), "somebody", 900):
        pass


def test_kills_and_cuts_lose_and_double_nothing(
    request: pytest.FixtureRequest, server: S3Server, tmp_path: Path
) -> None:
    """50 of each with ``--deep``: two writers over a network that drops connections, killed at random instants."""
    most, rounds, chance = (300, 50, 0.03) if request.config.getoption("--deep") else (10, 2, 0.03)
    dice = random.Random(7)
    with Network(server.port, seed=7) as network:
        home = server.home(tmp_path / "home", tmp_path.name, network.url)
        lake = Lake(home)
        lake.ensure("rejected_records")
        network.chance = chance
        for _ in range(rounds):
            writers = [start(home, name, most) for name in "ab"]
            time.sleep(dice.uniform(1.2, 2.5))
            for writer in writers:
                writer.kill()
                writer.wait()
        writers = [start(home, name, most) for name in "ab"]
        wait_until(lambda: all(one.poll() is not None for one in writers), "the writers to end", seconds=5 * most)
        network.chance = 0.0
        assert reasons(lake) == sorted(f"{name}-{number}" for name in "ab" for number in range(most))
        assert network.cuts >= rounds
