"""What every collector of the process shares."""

from __future__ import annotations

from dataclasses import dataclass, field

from collectors.board import Board
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from collectors.writer import Writer
from lake.clock import Clock


@dataclass(frozen=True, slots=True)
class Context:
    """The settings of the whole section, the one writer to bronze, our own metrics, the newest samples, the clock."""

    settings: CollectSettings
    writer: Writer
    metrics: SelfMetrics
    board: Board
    clock: Clock = field(default_factory=Clock)
