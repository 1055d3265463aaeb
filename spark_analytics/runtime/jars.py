"""Spark's extra jars, fetched once, checked against their declared SHA-256, and reused off line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lake.errors import UserError
from spark_analytics.runtime.cache import cache_root, replacing
from spark_analytics.runtime.coordinates import KAFKA, S3, Jar, coordinates_file, read_coordinates, read_jars
from spark_analytics.runtime.progress import Progress
from spark_analytics.runtime.repository import Repository, TransferError, chosen_repository

FIX = (
    "check the network, proxy and certificates, name a reachable Maven repository (address or folder) with "
    "SOJOURN_MAVEN_REPOSITORY, or copy the jar into the cache"
)


def ensure_jars(
    environ: Mapping[str, str] = os.environ, *, progress: Callable[[str], Progress] = Progress
) -> list[Path]:
    """The paths of all declared jars, fetching those that the cache lacks or holds damaged.

    Raises UserError where a jar can neither be found nor fetched.
    """
    declared = read_coordinates(coordinates_file(environ)).jars
    return ensure_declared(declared, cache_root(environ) / "jars", environ, progress=progress, what="Spark's jars")


def ensure_kafka_jars(
    environ: Mapping[str, str] = os.environ, *, progress: Callable[[str], Progress] = Progress
) -> list[Path]:
    """The paths of the jars that reading Kafka needs besides; errors as above."""
    return ensure_declared(
        read_jars(KAFKA), cache_root(environ) / "jars", environ, progress=progress, what="Spark's jars for Kafka"
    )


def ensure_s3_jars(
    environ: Mapping[str, str] = os.environ, *, progress: Callable[[str], Progress] = Progress
) -> list[Path]:
    """The paths of the jars that reading a lake at `s3://…` needs besides; errors as above."""
    return ensure_declared(
        read_jars(S3), cache_root(environ) / "jars", environ, progress=progress, what="Spark's jars for S3"
    )


def ensure_declared(
    declared: Sequence[Jar],
    folder: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    progress: Callable[[str], Progress] = Progress,
    what: str = "jars",
) -> list[Path]:
    """The paths of ``declared`` in ``folder``, fetching those that it lacks or holds damaged; errors as above."""
    missing = [jar for jar in declared if not is_intact(folder / jar.file_name, jar)]
    if missing:
        repository = chosen_repository(environ)
        for number, jar in enumerate(missing, start=1):
            label = f"{what}, {number} of {len(missing)}: {jar.file_name}"
            _fetch(jar, folder / jar.file_name, repository, progress(label))
    return [folder / jar.file_name for jar in declared]


def is_intact(path: Path, jar: Jar) -> bool:
    """Whether ``path`` holds exactly the bytes that were declared (9 MB take some 10 ms)."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(
            f"cannot read the cached jar {path}: {error.strerror}", "remove it, or name another SOJOURN_CACHE"
        ) from error


def _fetch(jar: Jar, path: Path, repository: Repository, progress: Progress) -> None:
    with progress, replacing(path) as temporary:
        try:
            repository.download(jar.repository_path, temporary, progress)
        except TransferError as error:
            raise UserError(f"cannot fetch {jar.file_name} to {path.parent}: {error}", FIX) from error
        if not is_intact(temporary, jar):
            raise UserError(
                f"{jar.file_name} from {repository.shown} is not the file that was declared (its SHA-256 differs)",
                "use another repository with SOJOURN_MAVEN_REPOSITORY; nothing was kept",
            )
        temporary.chmod(0o644)
