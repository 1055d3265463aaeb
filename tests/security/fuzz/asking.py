"""The fuzzer's first half: statements through the check, then a part of them through Spark's parser and the reader."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lake.errors import SojournError
from lake.reader import Reader
from tests.security.fuzz.figures import Findings, megabytes, teller
from tests.security.fuzz.judging import Verdict, judge
from tests.security.fuzz.statements import statement

SECRET = "fuzz-secret-2c9b1e"
SECRET_NAME = "SOJOURN_FUZZ_SECRET"
#: Statements that are made and judged at a time.
CHUNK = 500
#: What grows beyond this in a process that has judged thousands of statements is a leak.
MOST_GROWTH_MB = 300


@dataclass(slots=True)
class Judged:
    """A chunk's outcome."""

    count: int
    accepted: list[tuple[str, str]] = field(default_factory=list)
    faults: list[Verdict] = field(default_factory=list)
    process: int = 0
    memory: float = 0.0


def ask(
    findings: Findings, total: int, seed: int, folder: Path, corpus: Sequence[str], *, jobs: int, parsed: int, run: int
) -> list[str]:
    """Judge ``total`` statements, ask the reader ``run`` of those accepted. Returns ``parsed`` canonical texts."""
    accepted, memories = [], {}
    tell, done, strange = teller("statements", total), 0, 0
    starts = range(0, total, CHUNK)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        chunks = [pool.submit(_judged, seed, at, min(total, at + CHUNK), str(folder / "made"), corpus) for at in starts]
        for chunk in chunks:
            part = chunk.result()
            done += part.count
            accepted += part.accepted
            memories.setdefault(part.process, []).append(part.memory)
            for verdict in part.faults:
                strange += bool(verdict.wrong)
                findings.fault(f"{verdict.crash or verdict.wrong}: {verdict.sent!r} -> {verdict.text!r}")
            tell(done)
    crashes = len(findings.faults) - strange
    effects = strange + _carry_out(findings, _some(accepted, run), folder)
    findings.count("statements_checked", done, "statements")
    findings.count("statements_accepted", len(accepted), "statements")
    findings.count("statements_carried_out", min(run, len(accepted)), "statements")
    findings.count("statements_effects", effects, "statements")
    findings.count("statements_crashes", crashes, "statements")
    begun, ended = (max(values[place] for values in memories.values()) for place in (0, -1))
    findings.count("statements_rss_before_mb", begun, "MB")
    findings.count("statements_rss_after_mb", ended, "MB")
    if ended - begun > MOST_GROWTH_MB:
        findings.fault(f"checking statements grew from {begun:.0f} to {ended:.0f} MB")
    return [text for _, text in _some(accepted, parsed)]


def _judged(seed: int, first: int, after: int, marker: str, corpus: Sequence[str]) -> Judged:
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    os.environ[SECRET_NAME] = SECRET
    part = Judged(after - first, process=os.getpid())
    for number in range(first, after):
        verdict = judge(statement(seed, number, marker, corpus))
        if verdict.crash or verdict.wrong:
            part.faults.append(verdict)
        elif verdict.text is not None:
            part.accepted.append((verdict.sent, verdict.text))
    part.memory = megabytes(psutil.Process())
    return part


def _some(accepted: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """At most ``most``: those that looked strange when they were sent first, then the others, evenly."""
    strange = [
        one for one in accepted if not one[0].isascii() or any(sign in one[0] for sign in ("--", "/*", "\\", "$"))
    ]
    rest = [one for one in accepted if one not in set(strange)] if len(strange) < most else []
    step = max(1, len(rest) // max(1, most - len(strange)))
    return [*strange, *rest[::step]][:most]


def _carry_out(findings: Findings, statements: Iterable[tuple[str, str]], folder: Path) -> int:
    """Ask the reader what was sent, and look for effects: files, the secret, another exception than ours."""
    os.environ[SECRET_NAME] = SECRET
    before = len(findings.faults)
    reader = Reader(folder / "lake", timeout_seconds=10)
    for sent, _ in statements:
        try:
            if SECRET in str(reader.query(sent).to_pydict()):
                findings.fault(f"told the secret: {sent!r}")
        except SojournError as error:
            if SECRET in str(error):
                findings.fault(f"told the secret in an error: {sent!r}")
        except Exception as error:
            findings.fault(f"the reader let through {type(error).__name__}: {error}: {sent!r}")
    reader.close()
    if (folder / "made").exists():
        findings.fault("a statement made a file")
    return len(findings.faults) - before
