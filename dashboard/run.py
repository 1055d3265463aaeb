"""How the dashboard is started: an argument vector and an environment, for a supervisor or a shell.

Liveness: ``GET /_stcore/health`` answers 200 ``ok`` once the server listens.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from dashboard.settings import CALLBACK, DashboardSettings
from lake.errors import UserError

HEALTH_PATH = "/_stcore/health"
LAKE_VARIABLE = "SOJOURN_LAKE"
SETTINGS_VARIABLE = "SOJOURN_DASHBOARD_SETTINGS"
OBJECTIVES_VARIABLE = "SOJOURN_DASHBOARD_OBJECTIVES"
#: Where the alert process is asked to do something: ``url``, and ``token_env``, the variable that has its token.
API_VARIABLE = "SOJOURN_DASHBOARD_API"
#: The rule files that the alert process evaluates.
RULES_VARIABLE = "SOJOURN_DASHBOARD_RULES"
GROUPS_VARIABLE = "SOJOURN_DASHBOARD_GROUPS"
#: The settings file, for what pages have run by `sojourn` itself: the lab, and redrives. Its own commands read it, too.
CONFIG_VARIABLE = "SOJOURN_CONFIG"

_PACKAGE = Path(__file__).parent


def command(settings: DashboardSettings) -> list[str]:
    """The argument vector that serves the dashboard in the :func:`environment` of a lake; its port must be known."""
    if settings.port == 0:
        raise UserError("the dashboard's port is not chosen yet", "call claim_port first, or set [dashboard] port")
    return [sys.executable, "-m", "dashboard.serve"]


def environment(
    settings: DashboardSettings,
    lake_root: Path,
    inherited: Mapping[str, str] | None = None,
    objectives: Sequence[BaseModel] = (),
    api: Mapping[str, str] | None = None,
    config: Path | None = None,
    groups: Sequence[BaseModel] = (),
    rules: Sequence[Path] = (),
) -> dict[str, str]:
    """The environment to run :func:`command` in: the caller's own, with the lake, the settings, the objectives
    (:class:`alerts.objectives.SloEntry`) that the rules declare, the groups of tenants
    (:class:`dashboard.services.groups.Declared`) that entitlements do, where the alert process's API is, where the
    settings file is, and where the ``rules`` stand."""
    environ = dict(os.environ if inherited is None else inherited)
    package_parent = str(_PACKAGE.parent)
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != package_parent]
    return {
        **environ,
        LAKE_VARIABLE: str(Path(lake_root).expanduser().absolute()),
        SETTINGS_VARIABLE: settings.model_dump_json(),
        API_VARIABLE: json.dumps(dict(api or {})),
        **({} if config is None else {CONFIG_VARIABLE: str(config.expanduser().absolute())}),
        RULES_VARIABLE: json.dumps([str(file.expanduser().absolute()) for file in rules]),
        GROUPS_VARIABLE: f"[{','.join(one.model_dump_json() for one in groups)}]",
        OBJECTIVES_VARIABLE: f"[{','.join(one.model_dump_json(by_alias=True) for one in objectives)}]",
        "PYTHONPATH": os.pathsep.join([package_parent, *paths]),
    }


def exposure(settings: DashboardSettings) -> str:
    """What must be known before others can reach the dashboard; empty where only this machine can.

    Raises UserError where it would listen to all and answer to any name: a page elsewhere could then read it through a
    viewer's browser (DNS rebinding).
    """
    if settings.nameless:
        raise UserError(
            f"a dashboard at {settings.host or 'every address'} needs the names by which browsers may address it",
            "name them: --allowed-host sojourn.example.org, or [dashboard] allowed_hosts",
        )
    if settings.loopback:
        return ""
    if settings.signs_in:
        return ""
    return (
        f"Others can reach {settings.host}:{settings.port}. The dashboard has no login and no TLS: whoever gets there "
        "reads every queue and tenant, and changes nothing. Let people sign in: [dashboard.oidc] or [dashboard.proxy]."
    )


def claim_port(settings: DashboardSettings) -> DashboardSettings:
    """``settings`` with a port that is free now: the one they name, or any where they name 0.

    Raises UserError where the named port is taken or the address is not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise UserError(
                f"the dashboard cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
                "choose another: --host and --port, or [dashboard] host and port; port = 0 takes a free one",
            ) from error
        return settings.model_copy(update={"port": probe.getsockname()[1]})


def reached_at(settings: DashboardSettings) -> str | None:
    """Where people reach the dashboard as far as its settings say: where their provider sends them back to, else this
    machine's own address; None where a proxy, a name or a port is not told."""
    if settings.oidc is not None:
        return settings.oidc.redirect_uri.removesuffix(CALLBACK)
    here = settings.loopback and settings.port and settings.proxy is None and not settings.allowed_hosts
    return address(settings) if here else None


def address(settings: DashboardSettings) -> str:
    """The address to open in a browser on this machine."""
    host = settings.host if settings.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
