"""``sojourn collect | analyze | alert | dashboard``: one part alone, as it is deployed apart."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lake.errors import UserError
from lake.stopping import stopping
from sojourn.cli import logs
from sojourn.cli.options import ConfigOption, LakeOption, chosen, opened, part

if TYPE_CHECKING:
    from pydantic import BaseModel

    from alerts.settings import AlertSettings
    from sojourn.settings import Settings

OnceOption = Annotated[bool, typer.Option("--once", help="Work through what is there, then end.")]


def collect(config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Read brokers: sample their queues, tap their messages' lives, into the lake."""
    logs.start()
    part("collectors.lean").spare_memory()
    part("lake.web.accept").use_all_files()
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
    rebuild_state: Annotated[
        bool, typer.Option("--rebuild-state", help="Tell finished state anew from gold's partials, and end.")
    ] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="BROKER/QUEUE", help="With --rebuild-state: of this queue alone.")
    ] = None,
) -> None:
    """Turn records into metrics with Spark."""
    logs.start()
    settings, root = opened(config, lake)
    if queue is not None and not rebuild_state:
        raise UserError("--queue says of which queue finished state is told anew", "add --rebuild-state")
    section = settings.section("analyze", part("spark_analytics.settings").AnalyzeSettings)
    if rebuild_state:
        rows = part("spark_analytics.run").rebuild_state(root, queue, section)
        typer.echo(f"finished state{f' of {queue}' if queue else ''} is told anew: {rows:,} rows", err=True)
        return
    run = part("spark_analytics.run").run
    with stopping() as stop:
        run(section, root, stop, once=once, rebuild=rebuild)


def alert(config: ConfigOption = None, lake: LakeOption = None, once: OnceOption = False) -> None:
    """Evaluate rules, send webhooks, decide and serve limits."""
    logs.start()
    lean = part("lake.lean")
    lean.load_arrow_alone(reads=True)
    lean.give_back_memory()
    run = part("alerts.run").run
    settings, root = opened(config, lake)
    with stopping() as stop:
        run(leading_on(settings), root, stop, once=once, receipts=(sys.executable, "-m", "lab.receipt"))


def leading_on(settings: Settings) -> AlertSettings:
    """What the alert process is told, with where the dashboard is if its own section says so.

    An address of this machine is of use where the alert process, too, is reached on this machine alone.
    """
    section: AlertSettings = settings.section("alert", part("alerts.settings").AlertSettings)
    if section.dashboard_url is not None:
        return section
    try:
        found = settings.section("dashboard", part("dashboard.settings").DashboardSettings)
    except UserError:  # the dashboard says so itself; alerts go on without it
        return section
    if found.oidc is None and section.external_url is not None:
        return section
    return section.model_copy(update={"dashboard_url": part("dashboard.run").reached_at(found)})


def dashboard(
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen at [default: [dashboard] host, else 127.0.0.1].")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="The port; 0 takes a free one [default: [dashboard] port, else 8501]."
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="A name by which browsers may address it beyond the loopback; repeatable."),
    ] = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Serve the dashboard."""
    run = part("dashboard.run")
    settings, root = opened(config, lake)
    section = settings.section("dashboard", part("dashboard.settings").DashboardSettings)
    told = {"host": host, "port": port, "allowed_hosts": tuple(allowed_host) if allowed_host else None}
    section = section.model_copy(update={name: value for name, value in told.items() if value is not None})
    run.exposure(section)
    section = run.claim_port(section)
    if warning := run.exposure(section):
        typer.echo(warning, err=True)
    command = run.command(section)
    known = _alerting(settings)
    env = {**os.environ, **run.environment(section, root, **known, api=_api(settings), config=chosen(config))}
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} is not there")
    os.execvpe(command[0], command, env)


def _api(settings: Settings) -> dict[str, str]:
    """Where the alert process that these settings describe takes what operators ask of it."""
    if not settings.has("alert"):
        return {}
    section = settings.section("alert", part("alerts.settings").AlertSettings)
    token = {"token_env": section.token_env} if section.token_env else {}
    return {"url": section.reached_at, **token}


def _alerting(settings: Settings) -> dict[str, Any]:
    """What pages know of the alert process's settings, which has the built-in rules where nothing is said of it:
    objectives, groups of tenants, rule files; none, and a word why, where they cannot be read here."""
    try:
        section = settings.section("alert", part("alerts.settings").AlertSettings)
        loader = part("alerts.rules.loader")
        objectives: Sequence[BaseModel] = loader.load_objectives(section.rules)
        rules = loader.rule_files([*([loader.BUILTIN] if section.builtin else []), *section.rules])
    except UserError as error:
        typer.echo(f"pages show neither objectives, declared groups nor rules: {error}", err=True)
        return {}
    declared, is_pattern = part("dashboard.services.groups").Declared, part("sojourn.client.groups").is_pattern
    groups = [
        declared(broker=one.broker, queue=one.queue, pattern=one.tenant)
        for one in section.control.entitlements
        if is_pattern(one.tenant)
    ]
    return {"objectives": objectives, "groups": groups, "rules": rules}
