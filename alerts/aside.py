"""Where the SQL of rules runs: in a process that can be killed, one for all of a process's rules."""

from __future__ import annotations

from functools import cache

from lake.worker.worker import Worker

#: A rule that takes longer, or needs more, is a mistake: it would delay every rule behind it.
RULE_SECONDS = 10.0
RULE_MEMORY_MB = 1024


@cache
def rule_worker() -> Worker:
    """The worker over views that are held in memory."""
    return Worker(None, timeout_seconds=RULE_SECONDS, memory_mb=RULE_MEMORY_MB, spare=False)
