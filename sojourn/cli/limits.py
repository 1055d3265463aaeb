"""``sojourn limits``: what is in force now."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import typer

from lake.visible import visible
from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, existing, part
from sojourn.cli.sql import RowsOption

_QUERY = "SELECT broker, queue, tenant, rate, valid_until, policy, rule, reason, action_id FROM limits ORDER BY 1, 2, 3"


def limits(
    format: RowsOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show the limits that are in force, with the reason for each."""
    _, root = existing(config, lake)
    rows = part("lake.reader").Reader(root).query(_QUERY)
    if as_json or format is not None:
        part("sojourn.cli.rows").write("json" if as_json else format, rows.schema, rows.to_batches(), sys.stdout)
        return
    cards = part("dashboard.services.alerting").limit_cards(rows.to_pylist(), datetime.now(UTC))
    for card in cards:
        typer.echo(visible(f"{card.tenant} on {card.queue}: {card.limit} at most, {card.expires}"))
        typer.echo(visible(f"    {card.reason} · by {card.rule} · {card.action}"))
    if not cards:
        typer.echo("nothing is limited")
