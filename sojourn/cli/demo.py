"""``sojourn demo``: the whole system on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from sojourn.cli.options import LakeOption, part, stopping


def demo(
    duration: Annotated[float | None, typer.Option(help="Seconds in all, about [default: 165].")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Leave the dashboard out.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Limit nobody: what the surge does to the others without a limit.")
    ] = False,
    lake: LakeOption = None,
) -> None:
    """See a noisy tenant detected, named in a webhook, throttled, and everybody else recover: on a real broker."""
    run = part("sojourn.demo.run")
    with stopping() as stop:
        code = run.run(duration=duration, headless=headless, lake=lake, stop=stop, dry_run=dry_run)
    raise typer.Exit(code)
