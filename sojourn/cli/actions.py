"""``sojourn actions``: the journal of what was decided, and the operator's override."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lake.errors import UserError
from lake.visible import visible
from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, existing, part, say_json, settings_of
from sojourn.cli.sql import RowsOption

if TYPE_CHECKING:
    from dashboard.services.actions import Entry
    from sojourn.settings import Settings

app = typer.Typer(no_args_is_help=True, help="What was decided and why; approve it, take it back, or stop deciding.")

#: How a line of the journal is set below the one that says when and what.
_BELOW = "    "
_COLUMNS = "at, decision, outcome, queue, tenant, before, after, valid_until, rule, policy, actuator, reason, action_id"
UrlOption = Annotated[
    str | None, typer.Option("--url", help="The alert process's API [default: from the settings file].")
]


@app.command("list")
def list_(
    last: Annotated[int, typer.Option("--last", min=1, help="How many, the newest first.")] = 20,
    format: RowsOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show the journal of actions, with inputs and reasons kept."""
    _, root = existing(config, lake)
    reader, newest = part("lake.reader").Reader(root), f"FROM actions ORDER BY at DESC LIMIT {last}"
    if as_json or format is not None:
        rows = reader.query(f"SELECT {_COLUMNS} {newest}")
        part("sojourn.cli.rows").write("json" if as_json else format, rows.schema, rows.to_batches(), sys.stdout)
        return
    rows = reader.query(f"SELECT * {newest}").to_pylist(maps_as_pydicts="lossy")
    for entry in part("dashboard.services.actions").journal(rows, datetime.now(UTC), last):
        _say(entry)
    if not rows:
        typer.echo("nothing has been decided yet")


@app.command()
def show(
    action_id: Annotated[str, typer.Argument(help="An action, as `actions list` names it.")],
    as_json: JsonOption = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """One action from its beginning to its receipt: each row with its inputs, the setting that changed, its effect."""
    _, root = existing(config, lake)
    store = part("lake.store").Lake(root)
    where = [("action_id", "=", action_id)]
    rows = part("lake.dataset").rows_of(store.ensure("actions"), where=where).to_pylist(maps_as_pydicts="lossy")
    if not rows:
        raise UserError(f"there is no action {action_id!r}", "see `sojourn actions list`")
    if as_json:
        for row in sorted(rows, key=lambda row: row["at"]):
            say_json(row | {"at": row["at"].isoformat()})
        return
    for entry in reversed(part("dashboard.services.actions").journal(rows, datetime.now(UTC), len(rows))):
        _say(entry)
        seen = ", ".join(f"{name} {value}" for name, value in entry.seen)
        typer.echo(visible(f"{_BELOW}through {entry.actuator}; saw {seen or 'nothing'}"))


def _say(entry: Entry) -> None:
    what = f"{entry.what} ({entry.outcome})" if entry.outcome else entry.what
    typer.echo(visible(f"{entry.when}  {what}"))
    typer.echo(visible(f"{_BELOW}{entry.reason} · {entry.policy} · {entry.action}"))


@app.command()
def held(as_json: JsonOption = False, config: ConfigOption = None, lake: LakeOption = None) -> None:
    """What actuators hold at other servers now: the setting, what stood there before, what stands there, how long."""
    _, root = existing(config, lake)
    folder = root / "state" / "control"
    if not (folder / part("actuators.undo_log").FILE_NAME).exists():
        if not as_json:
            typer.echo("nothing is held")
        return
    undo_log = part("actuators.undo_log").UndoLog(folder)
    try:
        there = undo_log.held()
        for one in there:
            left = one.deadline - undo_log.now()
            if as_json:
                say_json(asdict(one) | {"seconds_left": left})
                continue
            lasts = f"{left:.0f} s left" if left > 0 else "overdue"
            typer.echo(visible(f"{one.actuator}  {one.place}  {one.before or 'nothing'} → {one.after}  {lasts}"))
        if not there and not as_json:
            typer.echo("nothing is held")
    finally:
        undo_log.close()


@app.command()
def approve(
    action_id: Annotated[str, typer.Argument(help="The proposal, as `actions list` names it.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
) -> None:
    """Put in force what a policy in `approve` mode proposes, until it is released or revoked."""
    api = part("lake.alert_api")
    ask(config, lake, url, api.action(action_id, "approve", api.own_name()))
    typer.echo(f"approved: {visible(action_id)}")


@app.command()
def revoke(
    action_id: Annotated[str, typer.Argument(help="The action to take back, as `actions list` names it.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
) -> None:
    """Take an action back now; its policy leaves that tenant alone for a while."""
    api = part("lake.alert_api")
    ask(config, lake, url, api.action(action_id, "revoke", api.own_name()))
    typer.echo(f"revoked: {visible(action_id)}")


@app.command()
def receipt(
    action_id: Annotated[str, typer.Argument(help="An action that has ended, as `actions list` names it.")],
    shed: Annotated[int, typer.Option(min=0, help="So many messages the limited tenant's producers gave up.")] = 0,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """What it saved whom and cost whom: its messages run again, with and without it; kept in the journal."""
    _, root = existing(config, lake)
    typer.echo(visible(part("lab.receipt").main(root, action_id, datetime.now(UTC), shed=shed)))


@app.command()
def pause(config: ConfigOption = None, lake: LakeOption = None, url: UrlOption = None) -> None:
    """The kill switch: release every limit and act no more until `resume`."""
    api = part("lake.alert_api")
    ask(config, lake, url, api.switch("pause", api.own_name()))
    typer.echo("paused: nothing is limited, nothing will be until `sojourn actions resume`")


@app.command()
def resume(config: ConfigOption = None, lake: LakeOption = None, url: UrlOption = None) -> None:
    """Let policies act again."""
    api = part("lake.alert_api")
    ask(config, lake, url, api.switch("resume", api.own_name()))
    typer.echo("resumed")


def ask(
    config: Path | None,
    lake: Path | None,
    url: str | None,
    path: str,
    *,
    method: str = "POST",
    body: Mapping[str, str] | None = None,
    hint: str = "see `sojourn actions list`",
) -> None:
    """A request to the API of the alert process that works on this lake, with ``body`` as JSON."""
    settings = settings_of(config)
    section = settings.section("alert", part("alerts.settings").AlertSettings)
    base = address(settings, settings.lake_root(lake), url)
    part("lake.alert_api").ask(base, path, token=section.token(), method=method, body=body, hint=hint)


def said_now(settings: Settings, root: Path, url: str | None = None) -> dict[str, dict[str, str]]:
    """By fingerprint what alerts that fire say now, as the alert process on the lake at ``root`` tells; empty where it
    cannot be asked: who only looks has what was said when the alert's state last changed."""
    section = settings.section("alert", part("alerts.settings").AlertSettings)
    api = part("lake.alert_api")
    try:
        token = section.token()
    except UserError:
        return {}
    bases = (url,) if url else api.addresses(root, section.reached_at)
    told: dict[str, dict[str, str]] = api.said_now(bases, token)
    return told


def address(settings: Settings, root: Path, url: str | None) -> str:
    """Where the alert process on the lake at ``root`` answers: as it is named, as it told, or by the settings."""
    section = settings.section("alert", part("alerts.settings").AlertSettings)
    api = part("lake.alert_api")
    return url or api.found(api.addresses(root, section.reached_at), api.LOOK_SECONDS)[0]
