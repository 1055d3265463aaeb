"""The four parts as child processes of a supervisor: each runs the very command that a user would run alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from sojourn.settings import Settings
from sojourn.supervise.probes import http_ok, require_free
from sojourn.supervise.supervisor import Child

PARTS = ("collect", "analyze", "alert", "dashboard")


def own_environment() -> dict[str, str]:
    """What a child needs to import the very Sojourn that runs here, installed or not."""
    home = str(Path(__file__).parent.parent)
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != home]
    return {"PYTHONPATH": os.pathsep.join([home, *others]), "PYTHONUNBUFFERED": "1"}


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", name, *arguments]


def part_child(name: str, settings: Settings, config: Path | None, lake: Path) -> Child:
    """Part ``name`` as a child; UserError where its settings are wrong or its port is taken."""
    command = module("sojourn.cli.main", name, "--lake", str(lake))
    if config is not None:
        command += ["--config", str(config)]
    return Child(name, command, own_environment(), ready=_readiness(name, settings))


def _readiness(name: str, settings: Settings) -> Callable[[], bool] | None:
    if name == "alert":
        from alerts.settings import AlertSettings

        alert = settings.section("alert", AlertSettings)
        if alert.port:
            require_free(alert.host, alert.port, "[alert] port")
            return http_ok(f"http://{alert.host}:{alert.port}/-/healthy")
    if name == "dashboard":
        from dashboard import run
        from dashboard.settings import DashboardSettings

        dashboard = settings.section("dashboard", DashboardSettings)
        if dashboard.port:
            return http_ok(run.address(run.claim_port(dashboard)) + run.HEALTH_PATH)
    return None
