"""``sojourn alerts``: what fires, why somebody was told of it or was not, and who told the alert process what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from lake.errors import UserError
from lake.visible import visible
from sojourn.cli.actions import UrlOption, address, ask, said_now
from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, existing, part, say_json, settings_of

if TYPE_CHECKING:
    from dashboard.services.alerts import AlertLine

app = typer.Typer(no_args_is_help=True, help="What fires, and why somebody was told of it, or was not.")

#: For how long a resolved alert is shown, and how long it may take the alert process to answer (seconds).
RESOLVED, PATIENCE = timedelta(days=1), 2.0
_SIGNS = {"firing": "▲", "pending": "△", "resolved": "✓"}


@app.command("list")
def list_(
    everything: Annotated[bool, typer.Option("--all", help="Those that were resolved within a day, too.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
) -> None:
    """Show the alerts that fire and those that are pending, the loudest first. Exit code 1: nobody evaluates rules."""
    settings, root = existing(config, lake)
    service, queries = part("dashboard.services.alerts"), part("dashboard.queries")
    now = datetime.now(UTC)
    reader = part("lake.reader").Reader(root)
    states, changes = (
        reader.query(sql).to_pylist(maps_as_pydicts="lossy")
        for sql in (queries.ALERT_STATES, queries.alert_transitions(None))
    )
    states = part("dashboard.services.alerting").renewed(states, said_now(settings, root, url))
    found = service.alert_lines(states, changes, (), now, now - RESOLVED)
    lines = [line for line in found if everything or not line.resolved]
    rows = {row["fingerprint"]: row for row in states}
    for line in lines:
        if as_json:
            row = rows[line.fingerprint]
            told = {name: row[name] for name in ("fingerprint", "rule_group", "rule", "value", "labels", "annotations")}
            say_json({**told, "state": _state(line), "since": line.since.isoformat()})
        else:
            _say(line)
    # That nothing fires is worth saying only of rules that somebody evaluates.
    evaluation = part("dashboard.services.freshness").Evaluation
    state = evaluation.of(part("lake.alert_api").is_ready(address(settings, root, url), PATIENCE))
    if state is not evaluation.RUNS:
        typer.echo(f"sojourn: {state.value}; what is shown is what was found last", err=True)
        raise typer.Exit(1)
    if not lines and not as_json:
        typer.echo("nothing fires, nothing is pending")


def _state(line: AlertLine) -> str:
    return "resolved" if line.resolved else line.card.state


def _say(line: AlertLine) -> None:
    card, state = line.card, _state(line)
    summary = card.summary or card.title
    typer.echo(visible(f"{_SIGNS[state]} {card.severity:8}  {summary}"))
    typer.echo(visible(f"            {card.title} {state} {card.since} · {card.about} · {line.fingerprint}"))


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
    hint = "see what fires with `sojourn alerts list`"
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
    lines = part("alerts.explain").journal(store, last)
    for line in lines or ["nobody has silenced, acknowledged or sent anything"]:
        typer.echo(visible(line))
