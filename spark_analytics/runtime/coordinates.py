"""The declared list of jars: Maven coordinates with their checksums."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.errors import UserError

DECLARED = Path(__file__).with_name("coordinates.toml")
KAFKA = Path(__file__).with_name("kafka.toml")
S3 = Path(__file__).with_name("s3.toml")
_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar, named by its Maven coordinate and known by the SHA-256 of its bytes."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The jar's name in a folder."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """The jar's place below a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The jars of one file, and the Spark version that they belong to."""

    spark: str
    jars: tuple[Jar, ...]


def coordinates_file(environ: Mapping[str, str] = os.environ) -> Path:
    """``$SOJOURN_JARS``, or the list that ships with Sojourn."""
    chosen = environ.get("SOJOURN_JARS")
    return Path(chosen).expanduser() if chosen else DECLARED


def read_coordinates(path: Path) -> Coordinates:
    """The jars that the TOML file ``path`` declares, and their Spark; UserError if it cannot be understood."""
    declared = _read(path)
    spark = declared.get("spark")
    if not isinstance(spark, str):
        raise _refused(path, 'no line spark = "VERSION"')
    return Coordinates(spark, _jars(path, declared))


def read_jars(path: Path) -> tuple[Jar, ...]:
    """The jars that the TOML file ``path`` declares; UserError if it cannot be understood."""
    return _jars(path, _read(path))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refused(path, str(error)) from error


def _jars(path: Path, declared: Mapping[str, Any]) -> tuple[Jar, ...]:
    entries = declared.get("jar")
    if not isinstance(entries, list) or not entries:
        raise _refused(path, "no [[jar]]")
    return tuple(_jar(path, entry) for entry in entries)


def _jar(path: Path, entry: object) -> Jar:
    if not isinstance(entry, dict) or set(entry) != {"coordinate", "sha256"}:
        raise _refused(path, "a [[jar]] has exactly the keys coordinate and sha256")
    coordinate, sha256 = str(entry["coordinate"]), str(entry["sha256"])
    # Both end up in paths: nothing but what a coordinate may hold.
    if not _COORDINATE.fullmatch(coordinate) or ".." in coordinate:
        raise _refused(path, f"{coordinate!r} is not group:artifact:version")
    if not _SHA256.fullmatch(sha256):
        raise _refused(path, f"the sha256 of {coordinate} is not 64 lower-case hexadecimal digits")
    group, artifact, version = coordinate.split(":")
    return Jar(group, artifact, version, sha256)


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"the list of jars {path} cannot be used: {why}", f"write it like {DECLARED}")
