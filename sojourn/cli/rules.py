"""``sojourn rules check | test``: rule files, before they page anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lake.visible import visible
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, settings_of

app = typer.Typer(no_args_is_help=True, help="Check rule files and run their unit tests.")

FilesArgument = Annotated[list[Path] | None, typer.Argument(help="Rule files or folders [default: those in use].")]


@app.command()
def check(files: FilesArgument = None, config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Say what is wrong with rule files, or that nothing is; with --lake also what they make of its data now."""
    settings = settings_of(config).section("alert", part("alerts.settings").AlertSettings)
    paths = files or list(settings.rules)
    rules = part("alerts.check").check(
        paths, builtin=not files and settings.builtin, actions=[policy.name for policy in settings.control.policies]
    )
    part("alerts.control.intervals").check_intervals(rules, settings)
    typer.echo(f"{len(rules)} rules, all valid")
    if lake is not None:
        _, root = existing(config, lake)
        survey = part("alerts.survey")
        found = survey.survey(rules, root, settings)
        for line in survey.described(found):
            typer.echo(visible(line))
        raise typer.Exit(1 if any(one.failed for one in found.series) else 0)


@app.command()
def test(files: FilesArgument = None, config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Run the unit tests of rules: files that end in _test.yml. None given: those of the built-in rules."""
    results = part("alerts.check").test(files or [])
    failed = [result for result in results if not result.passed]
    for result in failed:
        for problem in result.problems:
            typer.echo(visible(f"✗ {result.file}: {result.name}: {problem}"), err=True)
    typer.echo(f"{len(results) - len(failed)} of {len(results)} tests passed")
    raise typer.Exit(1 if failed else 0)
