"""Where the demo keeps its files below the lake, and the settings it writes for the parts."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from lake.files import write_atomically

#: The lake of a demo that was given none. Its parent folder ignores itself in git.
DEFAULT_LAKE = Path(".sojourn") / "demo"


@dataclass(frozen=True, slots=True)
class Layout:
    """The demo's files; all of them below the lake, so that a second run finds what the first one left."""

    lake: Path

    @property
    def settings(self) -> Path:
        """The ``sojourn.toml`` that every part of the demo reads: an example to start from."""
        return self.lake / "sojourn.toml"

    @property
    def state(self) -> Path:
        """What is the demo's own."""
        return self.lake / "state" / "demo"

    @property
    def logs(self) -> Path:
        """What each process says."""
        return self.lake / "state" / "logs"

    @property
    def broker(self) -> Path:
        """The broker's streams."""
        return self.state / "nats"

    @property
    def clock(self) -> Path:
        """When the scenario's clock started: written once the first metrics are there."""
        return self.state / "clock.json"

    @property
    def webhooks(self) -> Path:
        """What the receiver received."""
        return self.state / "webhooks.jsonl"

    @property
    def secret(self) -> Path:
        """The webhook's signing key."""
        return self.state / "webhook-secret"

    @property
    def report(self) -> Path:
        """The final table, for programs."""
        return self.lake / "state" / "demo-report.json"

    def producer(self, number: int) -> Path:
        """What a producer process has counted."""
        return self.state / f"producer-{number}.json"

    def prepare(self) -> None:
        """Make the folders and the secret; forget the clock of an earlier run."""
        self.state.mkdir(parents=True, exist_ok=True)
        if self.lake == DEFAULT_LAKE.absolute():
            write_atomically(self.lake.parent / ".gitignore", "*\n")
        if not self.secret.exists():
            self.secret.touch(mode=0o600)
            self.secret.write_text("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode(), encoding="utf-8")
        self.clock.unlink(missing_ok=True)
        for left in self.state.glob("producer-*.json"):
            left.unlink()

    def start_clock(self, at: float) -> None:
        """Tell the producers the scenario's start (unix seconds)."""
        write_atomically(self.clock, json.dumps({"starts_at": at}))

    def clock_start(self) -> float | None:
        """When the scenario's clock started, in unix seconds; None while it has not."""
        try:
            return float(json.loads(self.clock.read_text(encoding="utf-8"))["starts_at"])
        except FileNotFoundError:
            return None
