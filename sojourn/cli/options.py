"""What every command takes: the lake, the settings file, and the way to a part that may not be installed."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lake.errors import UserError
from lake.lean import without_pandas

if TYPE_CHECKING:
    from sojourn.settings import Settings

LakeOption = Annotated[
    Path | None,
    typer.Option("--lake", envvar="SOJOURN_LAKE", help="The lake's folder [default: [lake] root, else ./lake-data]."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="SOJOURN_CONFIG", help="The settings file, sojourn.toml."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]

OUR_PACKAGES = (
    "sojourn",
    "dashboard",
    "alerts",
    "spark_analytics",
    "collectors",
    "actuators",
    "brokers",
    "lake",
    "lab",
)
#: Package → the extra that installs what it needs.
EXTRAS = {
    "lake": "lake",
    "collectors": "collectors",
    "actuators": "alerts",
    "brokers": "collectors",
    "spark_analytics": "analytics",
    "alerts": "alerts",
    "dashboard": "dashboard",
    "sojourn": "demo",
    "lab": "all",
}
#: Spark Connect's own package asks for pandas when it is imported.
WITH_PANDAS = frozenset({"spark_analytics.connect"})


def part(module: str) -> ModuleType:
    """Import ``module`` of one of our packages; UserError that names the extra where what it needs is not installed.

    A command is spared pandas, which pyarrow would load: half a second of the processor, and 35 MB.
    """
    try:
        with nullcontext() if module in WITH_PANDAS else without_pandas():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OUR_PACKAGES:
            raise
        package = module.partition(".")[0]
        raise UserError(
            f"this command needs {missing}, which is not installed", f"pip install 'sojourn[{EXTRAS[package]}]'"
        ) from error


def say_json(value: Mapping[str, Any]) -> None:
    """Print ``value`` on one line, for a program; what JSON has no type for, as text, instants in ISO 8601."""
    from lake.plain import plain
    from lake.visible import visible_json

    typer.echo(visible_json(json.dumps(value, ensure_ascii=False, default=plain)))


def terminal_width() -> int | None:
    """Characters of a line at the terminal; None where the output is a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def settings_of(config: Path | None) -> Settings:
    """The settings of ``config``, else of ``./sojourn.toml`` if there is one."""
    from sojourn import settings

    return settings.load(chosen(config))


def chosen(config: Path | None) -> Path | None:
    """The settings file: ``config``, else ``./sojourn.toml`` if there is one."""
    here = Path("sojourn.toml")
    return config or (here if here.is_file() else None)


def opened(config: Path | None, lake: Path | None) -> tuple[Settings, Path]:
    """Settings and lake of a command that may make the lake: definitions that the settings name are kept with it."""
    settings = settings_of(config)
    root = settings.lake_root(lake)
    definitions = part("lake.definitions").Definitions
    wanted = settings.section("definitions", definitions)
    if settings.has("definitions") and definitions.load(root) != wanted:
        part("lake.store").Lake(root).create()
        wanted.save(root)
    return settings, root


def existing(config: Path | None, lake: Path | None) -> tuple[Settings, Path]:
    """Settings and lake of a command that only reads: UserError if there is no lake."""
    settings = settings_of(config)
    root = settings.lake_root(lake)
    if not root.is_dir():
        raise UserError(f"there is no lake at {root}", "name it with --lake, or run `sojourn demo` to make one")
    return settings, root
