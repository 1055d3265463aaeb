"""A Maven repository, as an address or a folder, and how a file comes out of it."""

from __future__ import annotations

import base64
import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from lake.errors import UserError
from spark_analytics.runtime.progress import Progress

TIMEOUT_SECONDS = 30.0
PAUSES_SECONDS = (0.5, 1.0, 2.0)  # between attempts
CHUNK = 1 << 18

_IVY_RESOLVER = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
_ADDRESS = re.compile(rb"https://[A-Za-z0-9._-]+(?::\d+)?/(?:[A-Za-z0-9._~-]+/)*maven2/")


class TransferError(Exception):
    """A file that the repository did not give; its text says why, in one line, without credentials."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository at ``address`` (http, https or file), with ``authorization`` if its URL held a user."""

    address: str
    authorization: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address, fit for a message: without user, password and query."""
        return self.address

    def download(self, path: str, target: Path, progress: Progress) -> None:
        """Write the file at ``path`` below the repository to ``target``; TransferError after some attempts."""
        request = urllib.request.Request(self.address + path, headers={"User-Agent": "sojourn"})
        if self.authorization:
            # Unredirected: a repository that points elsewhere does not hand our password on.
            request.add_unredirected_header("Authorization", self.authorization)
        for pause in (*PAUSES_SECONDS, None):
            try:
                _transfer(request, target, progress)
                return
            except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
                if pause is None or not _may_pass(error):
                    raise TransferError(f"{self.shown} {_told(error)}") from error
            time.sleep(pause)


def _transfer(request: urllib.request.Request, target: Path, progress: Progress) -> None:
    # urllib follows the machine's proxies (HTTPS_PROXY, NO_PROXY) and certificates (SSL_CERT_FILE).
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, target.open("wb") as out:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        done = 0
        while chunk := response.read(CHUNK):
            out.write(chunk)
            done += len(chunk)
            progress.update(done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in (408, 429)
    reason = getattr(error, "reason", None)
    return not isinstance(reason, FileNotFoundError) and "CERTIFICATE_VERIFY_FAILED" not in str(reason)


def _told(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"answers {error.code} {error.reason}"
    if isinstance(error, TimeoutError):
        return f"does not answer within {TIMEOUT_SECONDS:.0f} s"
    if isinstance(error, http.client.IncompleteRead):
        return "broke off in the middle of the file"
    reason = getattr(error, "reason", error)
    if isinstance(reason, FileNotFoundError):
        return "does not hold it"
    return f"cannot be read: {' '.join(str(reason).split())}"


def chosen_repository(environ: Mapping[str, str] = os.environ) -> Repository:
    """``$SOJOURN_MAVEN_REPOSITORY`` (address or folder), or the default of the Ivy inside pyspark."""
    chosen = environ.get("SOJOURN_MAVEN_REPOSITORY")
    return parse_repository(chosen) if chosen else Repository(default_address())


def parse_repository(text: str) -> Repository:
    """The repository that a user named; UserError if it is neither a folder nor an address that can be fetched."""
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https", "file"):
        folder = Path(text).expanduser().absolute()
        if not folder.is_dir():
            raise UserError(
                f"SOJOURN_MAVEN_REPOSITORY names neither a folder nor an http(s) address: {folder}",
                "make it a folder laid out as group/artifact/version/, or an address",
            )
        return Repository(folder.as_uri() + "/")
    host = parts.netloc.rpartition("@")[2]
    address = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/") + "/", "", ""))
    if parts.username is None:
        return Repository(address)
    user = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
    return Repository(address, "Basic " + base64.b64encode(":".join(user).encode()).decode())


def default_address() -> str:
    """The address of the Maven repository that Spark's own dependency resolver uses when nobody names one.

    Ivy, which ships inside pyspark, holds it as a constant of IBiblioResolver. Read from there, we follow what this
    Spark release trusts, and no registry's address is written down, and goes stale, in our own sources.
    """
    fix = "name one (address or folder) with SOJOURN_MAVEN_REPOSITORY"
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("pyspark is not installed", "pip install 'sojourn[analytics]'")
    for jar in sorted((Path(spec.submodule_search_locations[0]) / "jars").glob("ivy-*.jar")):
        try:
            with zipfile.ZipFile(jar) as archive:
                found = _ADDRESS.search(archive.read(_IVY_RESOLVER))
        except (OSError, KeyError, zipfile.BadZipFile):
            continue
        if found:
            return found.group().decode("ascii")
    raise UserError("this pyspark names no default Maven repository", fix)
