"""``sojourn demo``: the whole system on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.errors import UserError
from lake.stopping import stopping
from sojourn.cli.options import LakeOption, part


def demo(
    duration: Annotated[float | None, typer.Option(help="Seconds in all, about [default: 165].")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Leave the dashboard out.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Limit nobody: what the surge does to the others without a limit.")
    ] = False,
    approve: Annotated[
        bool,
        typer.Option("--approve", help="Limit nobody before somebody approves it, on the dashboard's page Actions."),
    ] = False,
    lake: LakeOption = None,
) -> None:
    """See a noisy tenant detected, named in a webhook, throttled, and everybody else recover: on a real broker."""
    if dry_run and approve:
        raise UserError("--dry-run limits nobody, whoever approves", "give one of --dry-run and --approve")
    run, mode = part("sojourn.demo.run"), "dry_run" if dry_run else "approve" if approve else "auto"
    with stopping() as stop:
        code = run.run(duration=duration, headless=headless, lake=lake, stop=stop, mode=mode)
    raise typer.Exit(code)
