"""``sojourn actions``: the journal of what was decided, and the operator's override."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

from lake.errors import SojournError, UserError
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, settings_of
from sojourn.cli.sql import Format

app = typer.Typer(no_args_is_help=True, help="What was decided and why; take it back, or stop deciding.")

_COLUMNS = "at, decision, outcome, queue, tenant, before, after, valid_until, rule, policy, reason, action_id"
UrlOption = Annotated[
    str | None, typer.Option("--url", help="The alert process's API [default: from the settings file].")
]


@app.command("list")
def list_(
    last: Annotated[int, typer.Option("--last", min=1, help="How many, the newest first.")] = 20,
    format: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show the journal of actions, with inputs and reasons kept."""
    _, root = existing(config, lake)
    rows = part("lake.reader").Reader(root).query(f"SELECT {_COLUMNS} FROM actions ORDER BY at DESC LIMIT {last}")
    sys.stdout.write(part("sojourn.cli.rows").FORMATS[format](rows))


@app.command()
def revoke(
    action_id: Annotated[str, typer.Argument(help="The action to take back, as `actions list` names it.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
    url: UrlOption = None,
) -> None:
    """Take an action back now; its policy leaves that tenant alone for a while."""
    _ask(config, lake, url, "POST", f"/v1/actions/{urllib.parse.quote(action_id, safe='')}/revoke")
    typer.echo(f"revoked: {action_id}")


@app.command()
def pause(config: ConfigOption = None, lake: LakeOption = None, url: UrlOption = None) -> None:
    """The kill switch: release every limit and act no more until `resume`."""
    _ask(config, lake, url, "POST", "/v1/actions/pause")
    typer.echo("paused: nothing is limited, nothing will be until `sojourn actions resume`")


@app.command()
def resume(config: ConfigOption = None, lake: LakeOption = None, url: UrlOption = None) -> None:
    """Let policies act again."""
    _ask(config, lake, url, "POST", "/v1/actions/resume")
    typer.echo("resumed")


def _ask(config: Path | None, lake: Path | None, url: str | None, method: str, path: str) -> Any:
    settings = part("alerts.settings").AlertSettings
    section = settings_of(_near(config, lake)).section("alert", settings)
    base = url or f"http://{section.host}:{section.port}"
    request = urllib.request.Request(base.rstrip("/") + path, method=method, data=b"")
    if token := section.token():
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise UserError(f"{base}{path} answers {error.code}: {_detail(error)}", "see `sojourn actions list`") from error
    except (urllib.error.URLError, OSError) as error:
        raise SojournError(f"no alert process answers at {base}: {getattr(error, 'reason', error)}") from error


def _near(config: Path | None, lake: Path | None) -> Path | None:
    """The settings file given, else the one that a demo left in its lake."""
    chosen = lake or (Path(os.environ["SOJOURN_LAKE"]) if "SOJOURN_LAKE" in os.environ else None)
    if config is None and chosen is not None and (chosen / "sojourn.toml").is_file():
        return chosen / "sojourn.toml"
    return config


def _detail(error: urllib.error.HTTPError) -> str:
    text = error.read(2000).decode(errors="replace").strip()
    try:
        return str(json.loads(text).get("error", text))
    except (ValueError, AttributeError):
        return text or error.reason
