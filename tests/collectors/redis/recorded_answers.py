"""Answers of a real server as JSON: bytes as text (Latin-1, so that nothing is lost), errors marked as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from brokers.redis.resp import Command, Refusal
from collectors.redis.layouts.base import Layout
from collectors.samples import Sample, unread

HERE = Path(__file__).parent / "recorded"


def encode(answer: Any) -> Any:
    """``answer`` as JSON can hold it."""
    if isinstance(answer, bytes):
        return answer.decode("latin-1")
    if isinstance(answer, Refusal):
        return {"error": str(answer)}
    return [encode(one) for one in answer] if isinstance(answer, list) else answer


def decode(kept: Any) -> Any:
    """The answer that was kept."""
    if isinstance(kept, str):
        return kept.encode("latin-1")
    if isinstance(kept, dict):
        return Refusal(kept["error"])
    return [decode(one) for one in kept] if isinstance(kept, list) else kept


class Recorded:
    """What one real server answered at one moment; the server was Redis 7.0.15, with Celery 5.7 and RQ 2.12."""

    def __init__(self, name: str) -> None:
        kept = json.loads((HERE / f"{name}.json").read_text())
        self.now: int = kept["now"]
        self.keys = frozenset(decode(kept["keys"]))
        self._answers = {tuple(decode(command)): decode(answer) for command, answer in kept["answers"]}

    def ask(self, commands: list[Command]) -> list[Any]:
        """The recorded answers; KeyError for a command that was not recorded."""
        plain = [tuple(part if isinstance(part, bytes) else str(part).encode() for part in one) for one in commands]
        return [self._answers[command] for command in plain]

    def samples(self, layout: Layout) -> list[Sample]:
        """What ``layout`` makes of these answers."""
        layout.take(self.keys, self.now)
        self._run(layout.prepare(self.now))
        found: list[Sample] = []
        for name, read in layout.queues():
            try:
                found += self._run(read(self.now))
            except Refusal as refusal:
                found.append(unread(name, self.now, str(refusal)))
        return found

    def _run(self, generator: Any) -> Any:
        try:
            commands = next(generator)
            while True:
                commands = generator.send(self.ask(commands))
        except StopIteration as ended:
            return ended.value


def expected(name: str) -> dict[str, Any]:
    """Queue (and ``/`` subscriber) → what is told of it, worked out by hand."""
    told: dict[str, Any] = json.loads((HERE / f"{name}.expected.json").read_text())
    return told
