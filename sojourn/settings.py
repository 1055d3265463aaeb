"""One ``sojourn.toml`` and its ``SOJOURN_…`` overrides, composed of the settings that each package owns.

A section is validated when the part that owns it runs, so that a part which is not installed is not needed to read the
rest. Override a key with its path in capitals, two underscores between the steps, list positions as numbers:
``SOJOURN_ALERT__LISTEN__PORT=9099``, ``SOJOURN_COLLECT__BROKERS__0__URL=nats://mq:4222``.
"""

from __future__ import annotations

import difflib
import os
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lake.address import Address, home_for, is_url
from lake.errors import UserError
from lake.secret import Secret

SECTIONS = ("lake", "definitions", "collect", "analyze", "alert", "dashboard")
PREFIX = "SOJOURN_"
DEFAULT_LAKE = Path("lake-data")

Model = TypeVar("Model", bound=BaseModel)


class LakeSettings(BaseModel):
    """``[lake]``: where the tables are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: Path = Field(
        default=DEFAULT_LAKE, description="the lake's folder; with `path`, of what stays on this machine's disk"
    )
    path: str | None = Field(default=None, description="where the tables are, if not there: `s3://bucket/prefix`")
    storage_options: Mapping[str, str | Secret] = Field(
        default_factory=dict, description="how `path` is reached, as deltalake names it; secrets by `env` or `file`"
    )

    @model_validator(mode="after")
    def _with_address(self) -> LakeSettings:
        if self.path is not None:
            self.address(self.path)
        elif self.storage_options:
            raise ValueError("storage_options are those of a lake's path, which is not set")
        return self

    def address(self, path: str) -> Address:
        """``path`` with the options. ValueError where it is no address."""
        return Address(path=path, storage_options=self.storage_options)


@dataclass(frozen=True)
class Settings:
    """What the file and the environment say, before any section is validated; ``origin`` names the file in errors."""

    tables: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "the environment"

    def has(self, section: str) -> bool:
        """Whether anything is said about ``section``."""
        return bool(self.tables.get(section))

    def section(self, name: str, model: type[Model]) -> Model:
        """Section ``name`` as ``model``; UserError, in one line, for the first thing that is wrong with it."""
        try:
            return model.model_validate(self.tables.get(name, {}))
        except ValidationError as error:
            raise _explained(error, name, model, self.origin) from None

    def lake_root(self, chosen: Path | None = None) -> Path:
        """The lake's folder: the one chosen on the command line, else ``[lake] root``.

        Where an address of an object store is chosen, or said by ``[lake] path``, the folder is made the home of that
        lake: it knows the address from then on. UserError where it is the home of another one.
        """
        lake = self.section("lake", LakeSettings)
        if chosen is not None and not is_url(chosen):
            return chosen.expanduser().absolute()
        path = lake.path if chosen is None else str(chosen)
        if path is None:
            return lake.root.expanduser().absolute()
        try:
            address = lake.address(path)
        except ValidationError as error:
            raise UserError(_said(error.errors()[0]["msg"]), "write it as s3://bucket/prefix") from None
        home = lake.root if "root" in lake.model_fields_set else home_for(address.path)
        home = home.expanduser().absolute()
        address.keep(home)
        return home


def load(path: Path | None = None, env: Mapping[str, str] = os.environ) -> Settings:
    """Read the TOML file at ``path`` (none: only the environment), then lay the ``SOJOURN_…`` overrides over it."""
    tables: dict[str, Any] = {}
    if path is not None:
        tables = _read(path)
    for key in tables:
        if key not in SECTIONS:
            raise _unknown(key, SECTIONS, str(path))
    for name in sorted(env):
        steps = name.removeprefix(PREFIX).lower().split("__")
        if name.startswith(PREFIX) and len(steps) > 1:
            if steps[0] not in SECTIONS:
                raise _unknown(steps[0], SECTIONS, f"the environment variable {name}")
            _override(tables, steps, _value(env[name]), name)
    return Settings(tables, str(path) if path else "the environment")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", "name the settings file with -c, or make one") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", "let this user read it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}", "fix that line") from None


def _value(text: str) -> Any:
    """A TOML value where ``text`` is one (numbers, booleans, lists), else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _override(tables: dict[str, Any], steps: list[str], value: Any, name: str) -> None:
    here: Any = tables
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        key: Any = step
        if isinstance(here, list):
            if not step.isdigit() or int(step) > len(here):
                raise UserError(f"{name}: {step!r} is no position in a list of {len(here)}", "count from 0")
            key = int(step)
            if key == len(here):
                here.append({})
        elif not isinstance(here, dict):
            raise UserError(f"{name}: there is nothing below {steps[0]}'s plain value", "check the key's path")
        if following is None:
            here[key] = value
        elif isinstance(here, dict):
            here = here.setdefault(key, [] if following.isdigit() else {})
        else:
            here = here[key]


def _said(message: str) -> str:
    """What a check of ours says, without what pydantic puts before it."""
    return message.removeprefix("Value error, ")


def _explained(error: ValidationError, section: str, model: type[BaseModel], origin: str) -> UserError:
    errors = error.errors()
    # A misspelt key often leaves another one missing: the misspelling is what to fix.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = ".".join(str(step) for step in (section, *first["loc"]))
    if first["type"] == "extra_forbidden":
        parent = _model_at(model, first["loc"][:-1])
        known = _keys(parent) if parent else ()
        return _unknown(str(first["loc"][-1]), known, f"{origin}, {'.'.join(where.split('.')[:-1])}")
    if first["type"] == "missing":
        return UserError(f"{where} is missing in {origin}", "set it")
    message = _said(first["msg"])
    return UserError(f"{where} in {origin} is not valid: {message[:1].lower()}{message[1:]}", "fix it")


def _unknown(key: str, known: typing.Iterable[str], where: str) -> UserError:
    candidates = sorted(known)
    near = difflib.get_close_matches(key, candidates, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(candidates)}"
    return UserError(f"unknown setting {key!r} in {where}", fix)


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model that holds the place ``loc`` of an error: steps are keys, list positions, and tags of unions."""
    current: list[type[BaseModel]] = [model]
    for step in loc:
        if isinstance(step, int):
            continue
        following: list[type[BaseModel]] = []
        for candidate in current:
            for name, info in candidate.model_fields.items():
                if step in (name, info.alias):
                    following += _models_in(info.annotation)
        if following:
            current = following
        else:  # a union's tag or a member's name narrows what we have
            current = [candidate for candidate in current if _answers_to(candidate, str(step))] or current
    return current[0] if current else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in typing.get_args(annotation) for found in _models_in(argument)]


def _answers_to(model: type[BaseModel], tag: str) -> bool:
    if model.__name__ == tag:
        return True
    return any(
        tag in typing.get_args(info.annotation)
        for info in model.model_fields.values()
        if typing.get_origin(info.annotation) is typing.Literal
    )
