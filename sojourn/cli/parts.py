"""``sojourn collect | analyze | alert | dashboard``: one part alone, as it is deployed apart."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from sojourn.cli import logs
from sojourn.cli.options import ConfigOption, LakeOption, opened, part, stopping

OnceOption = Annotated[bool, typer.Option("--once", help="Work through what is there, then end.")]


def collect(config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Read brokers: sample their queues, tap their messages' lives, into the lake."""
    logs.start()
    part("collectors.lean").spare_memory()
    run = part("collectors.run").run
    settings, root = opened(config, lake)
    section = settings.section("collect", part("collectors.settings").CollectSettings)
    with stopping() as stop:
        run(section, root, stop)


def analyze(
    config: ConfigOption = None,
    lake: LakeOption = None,
    once: OnceOption = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute gold anew from bronze.")] = False,
) -> None:
    """Turn records into metrics with Spark."""
    logs.start()
    settings, root = opened(config, lake)
    section = settings.section("analyze", part("spark_analytics.settings").AnalyzeSettings)
    run = part("spark_analytics.run").run
    with stopping() as stop:
        run(section, root, stop, once=once, rebuild=rebuild)


def alert(config: ConfigOption = None, lake: LakeOption = None, once: OnceOption = False) -> None:
    """Evaluate rules, send webhooks, decide and serve limits."""
    logs.start()
    run = part("alerts.run").run
    settings, root = opened(config, lake)
    section = settings.section("alert", part("alerts.settings").AlertSettings)
    with stopping() as stop:
        run(section, root, stop, once=once)


def dashboard(config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Serve the dashboard."""
    run = part("dashboard.run")
    settings, root = opened(config, lake)
    section = run.claim_port(settings.section("dashboard", part("dashboard.settings").DashboardSettings))
    command = run.command(section, root)
    env = {**os.environ, **run.environment(section, root)}
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} is not there")
    os.execvpe(command[0], command, env)
