"""``sojourn replay FILE…``: lifecycle events from files into the lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.options import ConfigOption, LakeOption, opened, part


def replay(
    files: Annotated[list[Path], typer.Argument(help="JSONL or Parquet with the columns of message_events.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Put recorded lifecycle events into the lake: post-mortems, tests. `analyze --once` then computes the metrics."""
    run = part("collectors.replay").replay
    _, root = opened(config, lake)
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("replaying …") as status:
        report = run(files, root, progress=lambda *said: status.update(" ".join(str(word) for word in said)))
    typer.echo(str(report))
