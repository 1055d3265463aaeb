"""Programs of the examples, in whatever language: one that says something and ends, and one that works until killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def answers(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    given: Iterable[Mapping[str, Any]] = (),
    folder: Path | None = None,
) -> list[dict[str, Any]]:
    """What ``command`` prints, a JSON object a line, when it is ``given`` such lines; it must end well."""
    ended = subprocess.run(
        command,
        cwd=folder,
        input="".join(json.dumps(one) + "\n" for one in given),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@contextmanager
def at_work(
    command: Sequence[str], environment: Mapping[str, str], *, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` for as long as the block lasts; killed at the end."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, **quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
