"""Running ordinary applications as their owners do: the vendor's client, OpenTelemetry's launcher, no line of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import program

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Life:
    """What an application logged of one message: unix seconds."""

    message: str
    sent: float
    begun: float
    done: float


def start(
    module: str, role: str, address: str, journal: Path, number: int, *, otlp: str | None
) -> subprocess.Popen[bytes]:
    """Start one role of an application; with ``otlp`` under ``opentelemetry-instrument``, exporting there."""
    command = [sys.executable, "-m", f"examples.apps.{module}", role, address, str(journal), str(number)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OTEL_SERVICE_NAME": f"orders-{role}"}
    if otlp is not None:
        command = [str(program("opentelemetry-instrument")), *command]
        env |= {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": otlp,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
    return subprocess.Popen(command, cwd=ROOT, env=env)


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait until the application has done its work; it must end in order."""
    try:
        assert process.wait(timeout=90) == 0
    finally:
        process.kill()


def lives(journal: Path) -> dict[str, Life]:
    """The finished messages of a journal, by message."""
    moments: dict[str, dict[str, float]] = {}
    for line in journal.read_text(encoding="utf-8").splitlines():
        note = json.loads(line)
        moments.setdefault(note["message"], {})[note["what"]] = note["at"]
    return {message: Life(message, **found) for message, found in moments.items() if "done" in found}
