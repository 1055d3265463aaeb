"""``sojourn alerts``: why somebody was told of an alert or was not, and who told the alert process what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from lake.visible import visible
from sojourn.cli.options import ConfigOption, LakeOption, existing, part

app = typer.Typer(no_args_is_help=True, help="Why somebody was told of an alert, or was not.")


@app.command()
def explain(
    fingerprint: Annotated[str, typer.Argument(help="The alert's fingerprint, or how it begins.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show an alert's way to each receiver, every decision with its reason."""
    settings, root = existing(config, lake)
    section = settings.section("alert", part("alerts.settings").AlertSettings)
    store = root / "state" / "alerts.sqlite"
    for line in part("alerts.explain").explain(store, section, fingerprint, datetime.now(UTC)):
        typer.echo(visible(line))


@app.command()
def journal(
    last: Annotated[int, typer.Option("--last", min=1, help="How many lines, the newest first.")] = 20,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show who silenced, acknowledged or sent what."""
    _, root = existing(config, lake)
    for line in part("alerts.explain").journal(root / "state" / "alerts.sqlite", last):
        typer.echo(visible(line))
