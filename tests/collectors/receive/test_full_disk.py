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
from lake.tables import EVENT_TYPES
from tests.collectors.receive.support import receiving, some
from tests.support.servers import require_server
from tests.support.waiting import wait_until

AT = 1_780_000_000_000_000
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
            answer = httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF, timeout=60)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        full.clear()
        assert httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF, timeout=60).status_code == 200
        rows = one.rows()
    assert len(rows) == 60
    assert {row["attempt"] for row in rows if row["event_type"] == "received"} == {1}


@pytest.mark.parametrize("failing", ["message_events", "event_summaries", "queue_samples"])
def test_an_append_that_was_written_though_it_failed_is_known_when_its_request_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    full, append = threading.Event(), Lake.append

    def no_space_behind(self: Lake, name: str, *arguments: Any, **options: Any) -> bool:
        appended = append(self, name, *arguments, **options)
        if name == failing and full.is_set():
            raise OSError(28, "No space left on device")  # for a checkpoint, say: the commit itself is there
        return appended

    monkeypatch.setattr(Lake, "append", no_space_behind)
    event = {"event_type": "enqueued", "broker": "b", "queue": "q", "message_id": "m", "occurred_at": AT}
    summary = dict.fromkeys([*EVENT_TYPES, "started", "retries", "finished_unreceived"], 0)
    summary |= {"broker": "b", "queue": "q", "bucket_start": AT, "newest_occurred_at": AT, "received": 3}
    poll = {"broker": "b", "queue": "q", "polls": 2, "empty_polls": 1}

    def post(sender: str, sequence: int) -> int:
        events = [event | {"event_id": f"{sender} {sequence}"}]
        told = {"events": events, "summaries": [summary], "polls": [poll]}
        request = {"version": 1, "sender": sender, "sequence": sequence} | told
        return httpx.post(f"{one.url}/v1/events", json=request, timeout=60).status_code

    with receiving(tmp_path / "lake") as one:
        assert post("s#1@2", 1) == 200
        full.set()
        assert post("s#1@2", 2) == 503
        full.clear()
        assert [post("t", 1), post("s#1@2", 2), post("s#1@2", 3)] == [200] * 3
        assert sorted(row["event_id"] for row in one.rows()) == ["s#1@2 1", "s#1@2 2", "s#1@2 3", "t 1"]
        assert len(one.rows("event_summaries")) == 4
        assert sorted(row["polls_total"] for row in one.rows("queue_samples")) == [2, 4, 6, 8]


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
            answer = httpx.post(f"{one.url}/v1/traces", content=body, headers=PROTOBUF, timeout=60)
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
