"""A disk that is really full: what could not be written is written when there is room again, each thing once."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collectors.support import collecting, connect, consume, kinds, make_queue, publish, settings, wait_finished
from tests.support.nats import NatsServer
from tests.support.servers import require_server
from tests.support.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 4 MB; mounting one takes root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        require_server("there is no mount")
    if done.returncode != 0:
        require_server(f"no file system can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return ballast


def test_a_full_disk_loses_nothing_and_doubles_nothing(
    own_nats_server: NatsServer, small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_queue(own_nats_server.url)
    root = small_disk / "lake"

    async def work(number: int) -> None:
        connection = await connect(own_nats_server.url)
        stream = connection.jetstream()
        await publish(stream, number)
        await consume(stream, number)
        await connection.close()

    with collecting(settings(own_nats_server.url), root):
        asyncio.run(work(50))
        wait_finished(root, 50)
        ballast = fill(small_disk)
        asyncio.run(work(100))
        wait_until(lambda: "no space left on the disk" in caplog.text, "the collector to notice")
        before = kinds(root)
        ballast.unlink()
        told = wait_finished(root, 150)
    assert before["completed"] + before["dead_lettered"] < 150, "the disk was full"
    ids = [event["event_id"] for event in told]
    assert len(ids) == len(set(ids))
    counts = kinds(root)
    assert counts["enqueued"] == 150
    assert counts["completed"] + counts["dead_lettered"] == 150
