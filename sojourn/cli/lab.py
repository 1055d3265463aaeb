"""``sojourn lab``: try policies on a simulated queue, or on an incident of one's own, before they touch anything."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.errors import UserError
from sojourn.cli.instants import instant
from sojourn.cli.options import ConfigOption, LakeOption, existing, part


def lab(
    scenario: Annotated[str | None, typer.Argument(help="A built-in scenario's name, or a file.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many runs each figure is taken over.")] = 5,
    from_lake: Annotated[
        str | None,
        typer.Option("--from-lake", help="T1..T2 (ISO 8601, UTC): run what the lake has of then again, every way."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="BROKER/QUEUE [default: where the most was finished then].")
    ] = None,
    subscriber: Annotated[str | None, typer.Option("--subscriber", help="Of several, whose consumers.")] = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Simulate queues under the very laws of the alerts' policies."""
    if (scenario is None) == (from_lake is None):
        raise UserError("what is to be simulated is not clear", "name a scenario, or --from-lake T1..T2")
    if scenario is not None:
        typer.echo(part("lab.run").main(scenario, seeds=seeds))
        return
    since, between, until = (from_lake or "").partition("..")
    broker, slash, name = (queue or "").partition("/")
    if not between or (queue is not None and not (broker and slash and name)):
        raise UserError("--from-lake takes T1..T2, --queue BROKER/QUEUE", "write 2026-11-23T05:00..2026-11-23T05:10")
    everything, root = existing(config, lake)
    policies = {
        f"{one.name} ({one.kind})": one
        for one in part("alerts.control.settings").to_compare(
            everything.section("alert", part("alerts.settings").AlertSettings).control
        )
    }
    place = (broker or None, name or None, subscriber)
    typer.echo(part("lab.replay").main(root, instant(since), instant(until), policies, place=place, seeds=seeds))
