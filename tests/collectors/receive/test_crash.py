"""SIGKILL of the receiver at random instants, between a commit and its answer too, neither loses nor doubles."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from collectors.settings import CollectSettings
from lake.store import Lake
from tests.collectors.receive.support import settings, some, start
from tests.support.waiting import wait_until

KILLS, SENDERS, MESSAGES = 3, 3, 20


class _Sender:
    """Sends request after request, each until it is taken, as exporters and our client do."""

    def __init__(self, number: int, url: str, stop: threading.Event) -> None:
        self.number, self._url, self._stop = number, url, stop
        self._http = httpx.Client(timeout=5)
        self.taken = 0

    def _until_taken(self, path: str, **content: Any) -> None:
        while True:
            try:
                answer = self._http.post(self._url + path, **content)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code in (429, 503), answer.text
            time.sleep(0.02)

    def spans(self) -> None:
        """Requests of spans."""
        while not self._stop.is_set():
            body = some(self.number * 100_000 + self.taken, MESSAGES).SerializeToString()
            self._until_taken("/v1/traces", content=body, headers={"content-type": "application/x-protobuf"})
            self.taken += 1

    def events(self) -> None:
        """Requests of our client, with a summary and a poll in each."""
        while not self._stop.is_set():
            event = {"event_type": "enqueued", "broker": "b", "queue": "q", "occurred_at": 1_780_000_000_000_000}
            events = [
                event | {"event_id": f"{self.taken}-{n}", "message_id": f"{self.taken}-{n}"} for n in range(MESSAGES)
            ]
            zeros = ("received", "completed", "failed", "dead_lettered", "expired", "sidelined", "delayed")
            summary = {"broker": "b", "queue": "q", "bucket_start": 1_780_000_000_000_000, "enqueued": 7}
            summary |= {"newest_occurred_at": 1_780_000_000_000_000, "backlog_cells": [[1_780_000_000, 7]]}
            summary |= dict.fromkeys((*zeros, "started", "retries", "finished_unreceived"), 0)
            body = {"version": 1, "sender": "s", "sequence": self.taken, "events": events, "summaries": [summary]}
            polls = [{"broker": "b", "queue": "q", "polls": 3, "empty_polls": 1}]
            self._until_taken("/v1/events", json=body | {"polls": polls})
            self.taken += 1


def test_killing_the_receiver_at_any_instant_neither_loses_nor_doubles(tmp_path: Path) -> None:
    chance, root, chosen = random.Random(4), tmp_path / "lake", settings()
    url, stop = f"http://127.0.0.1:{chosen.receive.http_port}", threading.Event()
    senders = [_Sender(number, url, stop) for number in range(SENDERS)]
    client = _Sender(0, url, stop)
    receiver = start(chosen, root)
    try:
        with ThreadPoolExecutor(SENDERS + 1) as pool:
            sending = [pool.submit(sender.spans) for sender in senders] + [pool.submit(client.events)]
            try:
                for _ in range(KILLS):
                    receiver = _killed_after_a_commit(receiver, chosen, root, chance.uniform(0.0, 0.15))
            finally:
                stop.set()
            for one in sending:
                one.result(120)
    finally:
        receiver.kill()
        receiver.wait()
    rows = Lake(root).read("message_events").to_pylist()
    ids = Counter(row["event_id"] for row in rows)
    assert not [event_id for event_id, count in ids.items() if count > 1]
    told = Counter((row["source"], row["event_type"]) for row in rows)
    sent = sum(sender.taken for sender in senders) * MESSAGES
    assert told == {
        ("otlp", "enqueued"): sent,
        ("otlp", "received"): sent,
        ("otlp", "completed"): sent,
        ("client", "enqueued"): client.taken * MESSAGES,
    }
    summaries = Lake(root).read("event_summaries").to_pylist()
    assert sum(row["enqueued"] for row in summaries) == client.taken * 7
    assert _polls(root) == client.taken * 3


def _killed_after_a_commit(
    receiver: subprocess.Popen[bytes], chosen: CollectSettings, root: Path, pause: float
) -> subprocess.Popen[bytes]:
    log = root / "bronze/message_events/_delta_log"

    def commits() -> int:
        return len(list(log.glob("*.json"))) if log.exists() else 0

    before = commits()
    wait_until(lambda: commits() > before + 2, "a commit", seconds=120)
    time.sleep(pause)
    receiver.kill()
    receiver.wait()
    return start(chosen, root)


def _polls(root: Path) -> int:
    """Polls as the analytics counts them: rises of the total, where a fall is a restart."""
    totals = [
        row["polls_total"]
        for row in sorted(Lake(root).read("queue_samples").to_pylist(), key=lambda row: row["sampled_at"])
    ]
    return sum(now - before if now >= before else now for before, now in zip([0, *totals], totals, strict=False))
