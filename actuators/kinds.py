"""Kinds that settings name, each in a module of its own that is imported where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

Settings = TypeVar("Settings", bound=BaseModel)
Made = TypeVar("Made")


class Kinds(Generic[Settings, Made]):
    """``places``: kind → (module, the class of its settings, the class that they describe)."""

    def __init__(self, places: Mapping[str, tuple[str, str, str]]) -> None:
        self.places = dict(places)

    def chosen(self, given: Any) -> Any:
        """Settings of the class that ``kind`` names. ValueError for a kind that there is none of."""
        if not isinstance(given, Mapping):
            return given
        kind = given.get("kind")
        if kind not in self.places:
            raise ValueError(f"kind is {kind!r}, none of {', '.join(self.places)}")
        return self._settings(kind).model_validate(dict(given))

    def all_settings(self) -> list[type[Settings]]:
        """The settings of every kind."""
        return [self._settings(kind) for kind in self.places]

    def make(self, settings: Settings) -> Made:
        """What ``settings`` describe; connects to nothing yet."""
        module, _, name = self.places[getattr(settings, "kind", "")]
        found: Made = getattr(import_module(module), name)(settings)
        return found

    def _settings(self, kind: str) -> type[Settings]:
        module, name, _ = self.places[kind]
        found: type[Settings] = getattr(import_module(module), name)
        return found
