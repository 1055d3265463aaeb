"""``sojourn lab SCENARIO``: try a policy on a simulated queue before it touches anything."""

from __future__ import annotations

from typing import Annotated

import typer

from sojourn.cli.options import ConfigOption, LakeOption, part


def lab(
    scenario: Annotated[str, typer.Argument(help="A built-in scenario's name, or a file.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many runs each figure is taken over.")] = 5,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Simulate queues under the very laws of the alerts' policies."""
    typer.echo(part("lab.run").main(scenario, seeds=seeds))
