"""The whole way of a message over an object store, by the commands that a user types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.s3 import BUCKET, CREDENTIALS, S3Server
from tests.support.waiting import PATIENCE

HOME = Path(__file__).parents[2]
BACKLOG = "SELECT tenant, backlog FROM tenant_backlog_now ORDER BY tenant"


def events(path: Path) -> Path:
    """Three messages of each of two tenants, of which one tenant's are completed."""
    begin = datetime.now(UTC) - timedelta(seconds=30)
    told = []
    for number in range(6):
        tenant, enqueued = "ab"[number % 2], begin + timedelta(seconds=number)
        whole = ("enqueued", "received", "completed") if tenant == "a" else ("enqueued",)
        for step, event in enumerate(whole):
            told.append(
                {
                    "event_type": event,
                    "broker": "nats",
                    "queue": "orders",
                    "tenant": tenant,
                    "message_id": f"m{number}",
                    "attempt": 1,
                    "enqueued_at": enqueued.isoformat(),
                    "occurred_at": (enqueued + timedelta(seconds=step)).isoformat(),
                }
            )
    path.write_text("".join(json.dumps(one) + "\n" for one in told))
    return path


def test_events_in_an_object_store_become_metrics(server: S3Server, tmp_path: Path) -> None:
    settings = tmp_path / "sojourn.toml"
    settings.write_text(
        f"""
        [lake]
        root = "{tmp_path / "home"}"
        path = "s3://{BUCKET}/story"
        [lake.storage_options]
        aws_endpoint_url = "{server.url}"
        aws_access_key_id = "any"
        aws_secret_access_key = {{ env = "THEIR_SECRET" }}
        """
    )
    environ = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}

    def sojourn(*words: str) -> str:
        command = [sys.executable, "-m", "sojourn.cli.main", *words, "--config", str(settings)]
        run = subprocess.run(
            command,
            cwd=HOME,
            env={**environ, "THEIR_SECRET": "hush"},
            capture_output=True,
            text=True,
            timeout=120 * PATIENCE,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-4000:]
        assert "hush" not in run.stdout + run.stderr
        return run.stdout

    sojourn("replay", str(events(tmp_path / "events.jsonl")))
    sojourn("analyze", "--once")
    told = sojourn("sql", BACKLOG, "--engine", "reader", "--format", "csv")
    assert told.split() == ["tenant,backlog", "b,3"] or told.split() == ["tenant,backlog", "a,0", "b,3"]
    assert sojourn("sql", BACKLOG, "--engine", "spark", "--format", "csv") == told
    sojourn("maintain")
    assert sojourn("sql", BACKLOG, "--engine", "reader", "--format", "csv") == told
    assert not list((tmp_path / "home").rglob("_delta_log")), "no table is on this disk"
