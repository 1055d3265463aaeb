"""``sojourn lab``: try policies on a simulated queue, or on an incident of one's own, before they touch anything."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from lake.errors import UserError
from lake.visible import visible_json
from sojourn.cli.instants import instant
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, terminal_width


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
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="With --from-lake: refuse more messages than so many.")
    ] = None,
    json_too: Annotated[
        bool, typer.Option("--json", help="One JSON object, with the course of a run each way; progress on stderr.")
    ] = False,
    list_too: Annotated[bool, typer.Option("--list", help="Name the built-in scenarios, and end.")] = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Simulate queues under the very laws of the alerts' policies."""
    shown = part("lab.shown")
    if list_too:
        found = shown.listed()
        widest = max(len(one["name"]) for one in found)
        typer.echo(_json(found) if json_too else "\n".join(f"{one['name']:<{widest}}  {one['title']}" for one in found))
        return
    if (scenario is None) == (from_lake is None):
        raise UserError("what is to be simulated is not clear", "name a scenario, or --from-lake T1..T2")
    if scenario is not None:
        if json_too:
            typer.echo(_json(shown.of_scenario(scenario, seeds=seeds, told=_told)))
        else:
            typer.echo(part("lab.run").main(scenario, seeds=seeds, width=terminal_width(), told=_progress))
        return
    since, between, until = (from_lake or "").partition("..")
    broker, slash, name = (queue or "").partition("/")
    if not between or (queue is not None and not (broker and slash and name)):
        raise UserError("--from-lake takes T1..T2, --queue BROKER/QUEUE", "write 2026-11-23T05:00..2026-11-23T05:10")
    everything, root = existing(config, lake)
    policies = {
        f"{one.name} ({one.law})": one
        for one in part("alerts.control.settings").to_compare(
            everything.section("alert", part("alerts.settings").AlertSettings).control
        )
    }
    place = (broker or None, name or None, subscriber)
    span = instant(since), instant(until)
    if json_too:
        told = shown.of_lake(root, *span, policies, place=place, seeds=seeds, most=most, told=_told)
        typer.echo(_json(told))
    else:
        typer.echo(
            part("lab.replay").main(
                root, *span, policies, place=place, seeds=seeds, width=terminal_width(), told=_progress
            )
        )


def _progress(ended: int, runs: int, way: str) -> None:
    """At a terminal, one line that is written anew for each run, and goes with the last."""
    if sys.stderr.isatty():
        print(
            "\r\x1b[K" + (f"{ended} of {runs} runs, {way}" if ended < runs else ""), end="", file=sys.stderr, flush=True
        )


def _told(ended: int, runs: int, way: str) -> None:
    """One line of progress a run, for whoever waits."""
    print(visible_json(json.dumps({"ended": ended, "runs": runs, "way": way}, ensure_ascii=False)), file=sys.stderr)


def _json(found: Any) -> str:
    return visible_json(json.dumps(found, ensure_ascii=False))
