"""``sojourn replay FILE…``: lifecycle events from files into the lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lake.visible import visible
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
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replaying", total=1.0)
        report = run(files, root, progress=lambda at: bar.update(task, completed=at.share, description=at.path.name))
    counts = f"{report.written:,} written, {report.duplicates:,} there before, {report.rejected:,} rejected"
    typer.echo(f"{report.read:,} records in {report.seconds:.1f} s: {counts}")
    if report.rejected:
        typer.echo("why: sojourn sql 'SELECT source, reason, count FROM rejected_records'", err=True)
    if report.ignored:
        typer.echo(f"fields that are no columns were left out: {visible(', '.join(report.ignored))}", err=True)
