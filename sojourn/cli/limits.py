"""``sojourn limits``: what is in force now."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, existing, part
from sojourn.cli.sql import Format

_QUERY = "SELECT broker, queue, tenant, rate, valid_until, policy, rule, reason, action_id FROM limits ORDER BY 1, 2, 3"


def limits(
    format: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show the limits that are in force, with the reason for each."""
    _, root = existing(config, lake)
    rows = part("lake.reader").Reader(root).query(_QUERY)
    if not rows.num_rows and format is Format.TABLE and not as_json:
        typer.echo("nothing is limited")
        return
    part("sojourn.cli.rows").write("json" if as_json else format, rows.schema, rows.to_batches(), sys.stdout)
