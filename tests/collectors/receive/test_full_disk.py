"""A lake that takes nothing: senders are told to come again, nothing is lost, and all goes on when it does."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.store import Lake
from tests.collectors.receive.support import receiving, some
from tests.support.servers import require_server
from tests.support.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}


def test_while_the_lake_takes_nothing_senders_are_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, append = threading.Event(), Lake.append

    def no_space(self: Lake, *arguments: Any, **options: Any) -> bool:
        if full.is_set():
            raise OSError(28, "No space left on device")
        return append(self, *arguments, **options)

    monkeypatch.setattr(Lake, "append", no_space)
    body = some(1).SerializeToString()
    with receiving(tmp_path / "lake") as one:
        full.set()
        for _ in range(2):
            answer = httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        full.clear()
        assert httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        rows = one.rows()
    assert len(rows) == 60
    assert {row["attempt"] for row in rows if row["event_type"] == "received"} == {1}


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few hundred kilobytes."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        require_server(f"a small tmpfs cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_what_was_told_to_be_taken_is_there_when_a_real_disk_is_full_and_all_when_it_is_not(tiny: Path) -> None:
    bodies = [some(index).SerializeToString() for index in range(200)]
    with receiving(tiny / "lake") as one:
        (tiny / "ballast").write_bytes(b"\0" * 300_000)
        taken = 0
        for body in bodies:
            answer = httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF)
            if answer.status_code != 200:
                assert answer.status_code == 503
                break
            taken += 1
        assert 0 < taken < len(bodies)
        assert len({row["event_id"] for row in one.rows()}) == taken * 60 == len(one.rows())
        (tiny / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=50m", str(tiny)], check=True)

        def again() -> bool:
            return httpx.post(f"{one.url}/v1/traces", content=bodies[taken], headers=PROTOBUF).status_code == 200

        wait_until(again, "the lake to take again")
        assert len({row["event_id"] for row in one.rows()}) == (taken + 1) * 60 == len(one.rows())
