"""What Sojourn remembers is for its owner alone: pages, limits, positions can be neither read nor forged by others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.control.state import State
from alerts.store import connect
from lake.files import only_one, write_atomically
from lake.store import Lake


def open_to_others(folder: Path) -> list[str]:
    """What below ``folder``, itself included, others than its owner may do anything with."""
    found = [folder, *folder.rglob("*")]
    return [str(path.relative_to(folder)) for path in found if path.lstat().st_mode & 0o077]


@pytest.fixture(autouse=True)
def _lax() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_state_is_made_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    store = lake.state_path("alerts.sqlite")
    database = connect(store)
    database.execute("INSERT INTO meta VALUES ('a', 'b')")
    state = State(lake.state_path("control", "_").parent)
    write_atomically(lake.state_path("run", "deep", "one.json"), "{}")
    with only_one(lake.state_path("locks", "one.lock"), "a test"):
        files = {path.name for path in (tmp_path / "lake" / "state").rglob("*") if path.is_file()}
        assert files >= {"alerts.sqlite", "alerts.sqlite-wal", "alerts.sqlite-shm", "control.sqlite", "one.lock"}
        assert open_to_others(tmp_path / "lake" / "state") == []
    state.close()
    database.close()


def test_state_of_an_earlier_release_is_closed_to_others_at_the_next_start(tmp_path: Path) -> None:
    lake, outside = Lake(tmp_path / "lake"), tmp_path / "outside"
    outside.write_text("not ours")
    state = lake.root / "state"
    (state / "collect" / "deep").mkdir(parents=True)
    for name in ("alerts.sqlite", "alerts.sqlite-wal", "collect/deep/sealed.arrow"):
        (state / name).write_text("")
    (state / "link").symlink_to(outside)
    assert len(open_to_others(state)) > 6
    lake.create()
    (state / "link").unlink()
    assert open_to_others(state) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o666, "what a link leads to is not ours"
    assert lake.path("partials").stat().st_mode & 0o077, "tables keep the modes of the umask"


def test_a_database_that_was_open_to_others_is_closed_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    first = connect(path)
    for one in tmp_path.iterdir():
        one.chmod(0o644)
    second = connect(path)
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}
    first.close()
    second.close()


def test_a_file_outside_of_state_keeps_the_modes_of_the_umask(tmp_path: Path) -> None:
    write_atomically(tmp_path / "shared" / "definitions.json", "{}")
    assert stat.S_IMODE((tmp_path / "shared" / "definitions.json").stat().st_mode) == 0o666
