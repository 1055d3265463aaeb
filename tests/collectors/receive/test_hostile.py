"""What strangers send to the receiver's HTTP port: it stops nobody, forges nothing and holds little."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lake.store import Lake
from tests.collectors.receive.support import Receiving, receiving, settings, start
from tests.security.requests import BROKEN, FORGED, bodies, head
from tests.support.waiting import wait_until

JSON = {"content-type": "application/json"}
EVENT = {
    "event_type": "enqueued",
    "broker": "nats",
    "queue": "q",
    "message_id": "m",
    "occurred_at": 1_780_000_000_000_000,
}


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    """A receiver that all tests here share; it has little patience."""
    patience = {"header_seconds": 0.5, "body_seconds": 0.5, "idle_seconds": 0.5}
    with receiving(tmp_path_factory.mktemp("hostile") / "lake", max_request_bytes=1 << 20, **patience) as one:
        yield one


def request(name: str, **event: Any) -> dict[str, Any]:
    """A proper request with one event."""
    return {"version": 1, "sender": name, "sequence": 1, "events": [EVENT | {"event_id": name} | event]}


def takes(receiver: Receiving, name: str) -> bool:
    """Whether a proper request is taken."""
    answer = httpx.post(f"{receiver.url}/v1/events", json=request(name), timeout=30)
    return answer.status_code == 200 and answer.json()["accepted"] == 1


def asked(receiver: Receiving, sent: bytes) -> bytes:
    """All that comes until the receiver closes the connection."""
    came = bytearray()
    with socket.create_connection(("127.0.0.1", receiver.http_port), timeout=30) as made:
        try:
            made.sendall(sent)
            while part := made.recv(65_536):
                came += part
        except ConnectionError:
            pass
    return bytes(came)


def test_what_a_web_page_can_forge_is_refused(receiver: Receiving) -> None:
    with ExitStack() as stack:
        made = []
        for name, sent in FORGED:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", receiver.http_port), timeout=30))
            connection.sendall(sent)
            made.append((name, connection))
        statuses = {name: int(connection.recv(65_536)[9:12] or b"0") for name, connection in made}
    assert {name for name, status in statuses.items() if not 400 <= status < 500} == set()
    assert "s" not in {row["source"] for row in receiver.rows()}
    assert takes(receiver, "after forged ones")


def test_broken_requests_are_bad_or_cut_off(receiver: Receiving) -> None:
    with ExitStack() as stack:
        made = []
        for name, sent in BROKEN:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", receiver.http_port), timeout=30))
            try:
                connection.sendall(sent)
            except ConnectionError:
                continue
            made.append((name, connection))
        for name, connection in made:
            try:
                answer = connection.recv(65_536)
            except ConnectionError:
                answer = b""
            assert not answer or answer[9:10] == b"4", (name, answer)
    assert takes(receiver, "after broken ones")


def test_hostile_bodies_are_answered_and_what_can_be_kept_of_them_is(receiver: Receiving) -> None:
    with httpx.Client(base_url=receiver.url, timeout=30) as client:
        for name, path, kind, packing, body in bodies():
            headers = {"content-type": kind} | ({"content-encoding": packing} if packing else {})
            status = client.post(path, content=body, headers=headers).status_code
            assert status in (200, 400, 413, 415), (name, status)
    assert takes(receiver, "after hostile ones")
    queues = {row["queue"] for row in receiver.rows()}
    assert "\ufffd" in queues and "\ufffdx" in queues
    assert any("\ufffd" in row["reason"] for row in receiver.rows("rejected_records"))


def test_a_request_of_too_many_events_is_told_so(tmp_path: Path) -> None:
    with receiving(tmp_path / "lake", max_spans=2) as one:
        events = [EVENT | {"event_id": str(number)} for number in range(3)]
        answer = httpx.post(f"{one.url}/v1/events", json=request("many") | {"events": events}, timeout=30)
        assert answer.status_code == 413 and "too many events" in answer.json()["message"]


def test_a_row_that_cannot_be_written_keeps_no_other_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Lake.append

    def poisoned(lake: Lake, name: str, rows: pa.Table, **numbered: Any) -> bool:
        if name != "rejected_records" and "poison" in str(rows.to_pylist()):
            raise ZeroDivisionError("nobody foresaw this")
        return append(lake, name, rows, **numbered)

    monkeypatch.setattr(Lake, "append", poisoned)
    names = ["first", "poison", "second", "third"]
    with receiving(tmp_path / "lake") as one:
        body = request("mixed") | {
            "events": [EVENT | {"event_id": name, "message_id": name} for name in names],
            "polls": [{"broker": "nats", "queue": name, "polls": 3} for name in names],
        }
        for _ in range(2):
            assert httpx.post(f"{one.url}/v1/events", json=body, timeout=30).status_code == 200
        assert takes(one, "after")
        assert sorted(row["message_id"] for row in one.rows()) == ["first", "m", "second", "third"]
        polled = {row["queue"]: row["polls_total"] for row in one.rows("queue_samples")}
        assert polled == {"first": 3, "second": 3, "third": 3}
        kept = one.rows("rejected_records")
        assert any("ZeroDivisionError" in row["reason"] and "poison" in row["raw"] for row in kept)


def test_half_bodies_and_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    limits = {"max_request_bytes": 2 << 20, "max_pending_bytes": 8 << 20, "max_connections": 100}
    chosen = settings(**limits, body_seconds=120, header_seconds=120, idle_seconds=120)
    one = Receiving(tmp_path / "lake", chosen.receive.grpc_port, chosen.receive.http_port)
    process = start(chosen, one.root)
    with ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.terminate)
        wait_until(one.answers, "the receiver to listen", seconds=60)
        assert takes(one, "before")
        before = _resident(process)
        half = head(length=2_000_000) + b" " * 1_900_000
        for _ in range(60):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", one.http_port), timeout=30))
            try:
                made.sendall(half)
            except ConnectionError:
                continue  # it has made room already
        for number in range(2_150):
            try:
                made = stack.enter_context(socket.create_connection(("127.0.0.1", one.http_port), timeout=30))
            except OSError:
                break  # this process may have no more
            if number % 500 == 0:
                assert takes(one, f"beside {number}")
        assert takes(one, "after")
        assert _resident(process) - before < 100 << 20


def _resident(process: subprocess.Popen[bytes]) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
