"""``sojourn alerts``: why somebody was told of an alert or was not, and who told the alert process what."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

import typer

from lake.visible import visible
from sojourn.cli.actions import UrlOption, ask
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
def acknowledge(
    fingerprint: Annotated[str, typer.Argument(help="The alert's fingerprint, 16 hexadecimal digits.")],
    comment: Annotated[str, typer.Option("--comment", help="What others should know.")] = "",
    author: Annotated[str | None, typer.Option("--author", help="Who looks after it [default: you].")] = None,
    over: Annotated[bool, typer.Option("--release", help="Nobody looks after it any more.")] = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
) -> None:
    """Say that you look after an alert: it is not repeated until it resolves; if you forget it, it reminds you."""
    hint = "see what fires with `amtool alert query -o json`"
    if over:
        ask(config, lake, url, f"/api/v2/acknowledgement/{quote(fingerprint, safe='')}", method="DELETE", hint=hint)
        typer.echo(f"released: {visible(fingerprint)}")
        return
    body = {"fingerprint": fingerprint, "createdBy": author or getpass.getuser(), "comment": comment}
    ask(config, lake, url, "/api/v2/acknowledgements", body=body, hint=hint)
    typer.echo(f"acknowledged: {visible(fingerprint)}")


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
