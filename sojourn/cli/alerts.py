"""``sojourn alerts``: why somebody was told of an alert or was not, and who told the alert process what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

import typer

from lake.errors import UserError
from lake.visible import visible
from sojourn.cli.actions import UrlOption, ask
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, settings_of

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
    store, now = section.store_of(root), datetime.now(UTC)
    for line in part("alerts.explain").explain(store, section, fingerprint, now):
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
    body = {"fingerprint": fingerprint, "createdBy": author or part("lake.alert_api").own_name(), "comment": comment}
    ask(config, lake, url, "/api/v2/acknowledgements", body=body, hint=hint)
    typer.echo(f"acknowledged: {visible(fingerprint)}")


@app.command()
def test(
    receiver: Annotated[str, typer.Argument(help="The receiver's name, as the settings have it.")],
    config: ConfigOption = None,
) -> None:
    """Tell one receiver of a test alert, by the very way that pages take; exit code 1 if it does not take it."""
    section = settings_of(config).section("alert", part("alerts.settings").AlertSettings)
    found = next((one for one in section.receivers if one.name == receiver), None)
    if found is None:
        names = ", ".join(one.name for one in section.receivers) or "none"
        raise UserError(f"there is no receiver {receiver!r}", f"there are: {names}")
    failed = False
    for tried in part("alerts.notify.trial").trial(found, section.external_url or ""):
        failed = failed or not tried.is_delivered
        answer = "" if tried.status_code is None else f" ({tried.status_code})"
        why = f": {tried.error}" if tried.error else ""
        took = "" if tried.seconds is None else f" in {tried.seconds:.2f} s"
        typer.echo(visible(f"{receiver}: {tried.told}: {tried.outcome}{answer}{took}{why}"), err=failed)
    raise typer.Exit(1 if failed else 0)


@app.command()
def journal(
    last: Annotated[int, typer.Option("--last", min=1, help="How many lines, the newest first.")] = 20,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show who silenced, acknowledged or sent what."""
    settings, root = existing(config, lake)
    store = settings.section("alert", part("alerts.settings").AlertSettings).store_of(root)
    for line in part("alerts.explain").journal(store, last):
        typer.echo(visible(line))
