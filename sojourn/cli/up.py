"""``sojourn up``: everything around the user's own brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.stopping import stopping
from sojourn.cli.options import ConfigOption, LakeOption, opened, part


def up(
    config: ConfigOption = None,
    lake: LakeOption = None,
    without: Annotated[list[str] | None, typer.Option("--without", help="A part that runs elsewhere.")] = None,
) -> None:
    """Run collectors, analytics, alerts and dashboard, supervised, until Ctrl-C."""
    run = part("sojourn.up").up
    settings, root = opened(config, lake)
    with stopping() as stop:
        run(settings, config, root, without or [], stop)
