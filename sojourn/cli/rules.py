"""``sojourn rules check | test | backtest``: rule files, before they page anybody."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from lake.errors import UserError
from lake.visible import visible
from sojourn.cli.instants import instant
from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, existing, part, say_json, settings_of

app = typer.Typer(no_args_is_help=True, help="Check rule files, run their unit tests, run them over history.")

FilesArgument = Annotated[list[Path] | None, typer.Argument(help="Rule files or folders [default: those in use].")]


@app.command()
def check(
    files: FilesArgument = None, as_json: JsonOption = False, config: ConfigOption = None, lake: LakeOption = None
) -> None:
    """Say what is wrong with rule files, or that nothing is; with --lake also what they make of its data now."""
    settings = settings_of(config).section("alert", part("alerts.settings").AlertSettings)
    paths = files or list(settings.rules)
    rules = part("alerts.check").check(
        paths, builtin=not files and settings.builtin, actions=[policy.name for policy in settings.control.policies]
    )
    intervals = part("alerts.control.intervals")
    # Some files alone say nothing of what other files' rules signal.
    (intervals.check_intervals if files else intervals.check_policies)(rules, settings)
    for line in part("alerts.control.cautions").cautions(settings.control):
        typer.echo(visible(line), err=True)
    if as_json and lake is None:
        for rule in rules:
            say_json({"rule": rule.name})
    elif not as_json:
        typer.echo(f"{len(rules)} rules, all valid")
    if lake is not None:
        _, root = existing(config, lake)
        survey = part("alerts.survey")
        found = survey.survey(rules, root, settings)
        if as_json:
            for one in found.series:
                say_json({**asdict(one), "rule": one.rule.name, "at": found.at})
        else:
            for line in survey.described(found):
                typer.echo(visible(line))
        raise typer.Exit(1 if any(one.failed for one in found.series) else 0)


@app.command()
def test(
    files: FilesArgument = None, as_json: JsonOption = False, config: ConfigOption = None, lake: LakeOption = None
) -> None:
    """Run the unit tests of rules: files that end in _test.yml. None given: those of the built-in rules."""
    results = part("alerts.check").test(files or [])
    failed = [result for result in results if not result.passed]
    if as_json:
        for result in results:
            say_json(asdict(result) | {"passed": result.passed})
        raise typer.Exit(1 if failed else 0)
    for result in failed:
        for problem in result.problems:
            typer.echo(visible(f"✗ {result.file}: {result.name}: {problem}"), err=True)
    typer.echo(f"{len(results) - len(failed)} of {len(results)} tests passed")
    raise typer.Exit(1 if failed else 0)


class Format(StrEnum):
    """How a backtest is told."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@app.command()
def backtest(
    begin: Annotated[str, typer.Option("--from", help="From when: ISO 8601 (UTC), or so long before --to: 7d, 36h.")],
    files: FilesArgument = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Until when: ISO 8601 (UTC) [default: the newest data].")
    ] = None,
    step: Annotated[str, typer.Option(help="Time between two evaluations.")] = "1m",
    settings_to_try: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE or RULE.NAME=VALUE: a threshold, for, within, objective … to try."),
    ] = None,
    names: Annotated[list[str] | None, typer.Option("--rule", help="Only these rules.")] = None,
    format: Annotated[Format, typer.Option(help="table: each rule; csv: each firing; json: all.")] = Format.TABLE,
    plot: Annotated[Path | None, typer.Option(help="Also draw what fired when into this SVG file.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of the terminal.")] = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Tell what rules would have done over the lake's history: what had fired, when, how long, how often a week."""
    everything, root = existing(config, lake)
    settings = everything.section("alert", part("alerts.settings").AlertSettings)
    changes = part("alerts.rules.changes").Changes(settings_to_try or ())
    rules = part("alerts.rules.loader").load_rules(
        files or list(settings.rules), builtin=not files and settings.builtin, changes=changes
    )
    target_seconds = changes.target_seconds()
    changes.finish()
    unknown = sorted(set(names or ()) - {rule.name for rule in rules})
    if unknown:
        raise UserError(f"there is no rule {unknown[0]}", f"there are {', '.join(sorted(rule.name for rule in rules))}")
    chosen = [rule for rule in rules if not names or rule.name in names]
    durations = part("alerts.durations")
    until = instant(end) if end is not None else part("alerts.backtest.run").newest(root)
    since = until - length if (length := _length(begin, durations)) is not None else instant(begin)
    try:
        between = durations.parse_duration(step)
    except ValueError as error:
        raise UserError(f"--step: {error}", "write 1m") from None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        found = part("alerts.backtest.run").backtest(
            chosen,
            root,
            since,
            until,
            between,
            stale_after=settings.stale_after,
            target_seconds=target_seconds,
            # Who names rules wants to see them, whether or not they are evaluated as things are set.
            unused=lambda rule: None if names else part("alerts.control.intervals").unused(rule, settings.control),
            progress=lambda what, share: bar.update(task, completed=share, description=what),
        )
    report = part("alerts.backtest.report")
    if format is Format.TABLE:
        text = "\n".join(visible(line) for line in report.table(found).split("\n")) + "\n"
    else:
        text = report.as_csv(found) if format is Format.CSV else report.as_json(found)
    if plot is not None:
        _write(plot, part("alerts.backtest.plot").svg(found))
    if output is None:
        typer.echo(text, nl=False)
    else:
        _write(output, text)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "name another file") from error


def _length(text: str, durations: ModuleType) -> timedelta | None:
    try:
        length: timedelta = durations.parse_duration(text)
        return length
    except ValueError:
        return None
