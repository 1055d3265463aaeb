"""``sojourn doctor``: what is wrong here, and how to fix it."""

from __future__ import annotations

from dataclasses import asdict

import typer

from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, say_json, settings_of


def doctor(as_json: JsonOption = False, config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Check Java, jars, brokers, clocks, ports, disk and lake; say what will be known of each broker, and what not."""
    settings = settings_of(config)
    from rich.console import Console

    from sojourn.doctor import examine, shown

    with Console(stderr=True).status("looking …") as status:  # shown on a terminal alone
        findings = examine(settings, settings.lake_root(lake), lambda what: status.update(f"looking at {what} …"))
    if as_json:
        for finding in findings:
            say_json(asdict(finding) | {"grade": finding.grade.value})
    else:
        shown(findings)
    raise typer.Exit(1 if any(finding.fails for finding in findings) else 0)
