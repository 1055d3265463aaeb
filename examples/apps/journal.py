"""What an application logs of its own messages: one JSON line for each thing it did, for somebody to compare with."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Literal


class Journal:
    """Appends to one file; every line is written out at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def note(self, what: Literal["sent", "begun", "done", "failed"], message: str, attempt: int = 1) -> None:
        """``message`` was sent, or its attempt began or ended, now."""
        line = {"what": what, "message": message, "attempt": attempt, "at": time.time()}
        self._file.write(json.dumps(line) + "\n")
