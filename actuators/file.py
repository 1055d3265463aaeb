"""``kind = "file"``: a JSON file with the limits in force, for programs on this machine that read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from actuators.base import ActuatorSettings, Demand, refuse_other
from lake.errors import SojournError
from lake.files import write_atomically

#: A file with more than that is not ours.
_MOST_BYTES = 64 << 20


class FileSettings(ActuatorSettings):
    """Where the file is. Its form is that of ``GET /v1/limits``: ``{"limits": [{"broker": …, "rate": …}, …]}``."""

    kind: Literal["file"] = "file"
    path: Path = Field(description="the file; written whole or not at all")


class File:
    """Keeps one entry for each tenant; entries of others are left where they are."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: FileSettings) -> None:
        self._path = settings.path.expanduser()

    def place(self, demand: Demand) -> str:
        """Broker, queue and tenant."""
        return json.dumps([demand.broker, demand.queue, demand.tenant])

    def value(self, demand: Demand) -> str:
        """The entry."""
        return demand.document()

    def read(self, place: str) -> str | None:
        """The tenant's entry."""
        found = self._entries().get(place)
        return None if found is None else json.dumps(found, sort_keys=True)

    def check(self, before: str | None, value: str) -> None:
        """What stands there already is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Put the entry in place of the one before."""
        entries = self._entries()
        entries.pop(place, None)
        if value is not None:
            entries[place] = json.loads(value)
        try:
            write_atomically(self._path, json.dumps({"limits": list(entries.values())}, indent=1) + "\n")
        except OSError as error:
            raise SojournError(f"{self._path} cannot be written: {error.strerror}") from None

    def _entries(self) -> dict[str, dict[str, Any]]:
        try:
            with self._path.open(encoding="utf-8") as file:
                text = file.read(_MOST_BYTES)
            limits = json.loads(text)["limits"]
            return {json.dumps([one["broker"], one["queue"], one["tenant"]]): one for one in limits}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SojournError(f"{self._path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError):
            raise SojournError(f"{self._path} holds no limits: it is not overwritten") from None
