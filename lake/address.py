"""Where a lake's tables are: below its own folder, or below an address of an object store that a file there names.

The folder is the lake's *home* either way. Spools, locks, checkpoints of streams, databases and definitions stay in it;
who is given the home – another process, another command – finds the tables. Whoever shares tables across machines has a
home on each.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lake.errors import UserError
from lake.files import write_atomically
from lake.secret import Secret

FILE_NAME = "address.json"
#: Schemes of addresses, and what they are to deltalake.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "abfs", "abfss": "abfss"}
#: A command line's path parser makes one slash of two.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9]+):/+(?P<rest>.*)")
#: Options whose values are secret: in settings a place where they stand, never the value.
_SECRET = re.compile(r"secret|token|password|sas|_key$|^key$")
#: What S3 is asked for beside what the user says: a commit is a conditional put, and one who is cut off knows it soon.
#: Source of the names: object_store, `AmazonS3ConfigKey`, `ClientConfigKey`, `RetryConfig`.
DEFAULTS = {
    "aws_conditional_put": "etag",
    "timeout": "20s",
    "connect_timeout": "5s",
    "max_retries": "4",
    "retry_timeout": "20s",
}
_REGION = "us-east-1"
#: Read here, too: processes of ours that run others' SQL have none of this environment.
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
#: How often somebody who waits for a commit asks an object store for it (seconds): each question is a paid request.
LOOK_SECONDS = 0.2


class Address(BaseModel):
    """An address of an object store, and how it is reached."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="`s3://bucket/prefix`")
    storage_options: Mapping[str, str | Secret] = Field(
        default_factory=dict, description="as deltalake names them; secrets by `env` or `file`"
    )

    @field_validator("path")
    @classmethod
    def _known(cls, path: str) -> str:
        found = _URL.fullmatch(path.strip())
        if found is None or found["scheme"] not in SCHEMES:
            raise ValueError(f"{path!r} is no address of an object store, as s3://bucket/prefix is")
        url = f"{SCHEMES[found['scheme']]}://{found['rest'].rstrip('/')}"
        if not urlsplit(url).netloc:
            raise ValueError(f"{path!r} names no bucket, as s3://bucket/prefix does")
        if "@" in url and not url.startswith("abfs"):
            raise ValueError("an address holds no credentials: they are [lake.storage_options]")
        return url

    @field_validator("storage_options")
    @classmethod
    def _no_secrets(cls, options: Mapping[str, str | Secret]) -> Mapping[str, str | Secret]:
        for name, value in options.items():
            if isinstance(value, str) and is_secret_name(name):
                raise ValueError(f'{name} is a secret: give {{ env = "NAME" }} or {{ file = "path" }}')
        return {name.lower(): value for name, value in options.items()}

    def options(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """``storage_options`` with their secrets, and what we ask for beside. UserError where a secret is not there.

        What is not said here, the stores' clients find by their own variables, as ``AWS_ACCESS_KEY_ID``.
        """
        told = {
            name: value.read(f"[lake.storage_options] {name}") if isinstance(value, Secret) else value
            for name, value in self.storage_options.items()
        }
        if not self.path.startswith("s3:"):
            return told
        if not any(name in told for name in ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")):
            named = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
            told |= {"aws_endpoint_url": named} if named else {}
        if not any(name.endswith("access_key_id") for name in told):
            told |= {name.lower(): environ[name] for name in _CREDENTIALS if environ.get(name)}
        if any(value.startswith("http:") for name, value in told.items() if "endpoint" in name):
            told.setdefault("aws_allow_http", "true")
        if not any("region" in name for name in told):
            told["aws_region"] = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or _REGION
        return DEFAULTS | told

    def keep(self, home: Path) -> None:
        """Have the lake at ``home`` keep its tables here. UserError where it keeps them elsewhere."""
        known = address_of(home)
        if known == self:
            return
        if known is not None and known.path != self.path:
            raise UserError(
                f"{home} belongs to the lake at {known.path}, not to {self.path}", "choose another folder: [lake] root"
            )
        if known is None and any((home / layer).is_dir() for layer in ("bronze", "gold", "alerts")):
            raise UserError(
                f"{home} holds a lake's tables itself, and cannot be the home of {self.path}",
                "choose another folder: [lake] root",
            )
        home.mkdir(parents=True, exist_ok=True)
        write_atomically(home / FILE_NAME, self.model_dump_json(exclude_none=True, indent=2) + "\n")


def address_of(home: Path) -> Address | None:
    """The address at which the lake of ``home`` keeps its tables; None: in that folder. UserError."""
    path = home / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", "let this user read it") from error
    try:
        return Address.model_validate(json.loads(text))
    except (ValueError, ValidationError) as error:
        raise UserError(f"{path} is no address of a lake", "delete it, and name the address again") from error


def is_url(text: str | os.PathLike[str]) -> bool:
    """Whether ``text`` is an address, not a folder's name."""
    found = _URL.fullmatch(str(text))
    return found is not None and found["scheme"] in SCHEMES


def is_secret_name(name: str) -> bool:
    """Whether the value of option ``name`` is secret."""
    return _SECRET.search(name.lower()) is not None


def home_for(url: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the state of the lake at ``url`` is kept where nothing else is said: `~/.local/state/sojourn/NAME`.

    Source: XDG Base Directory Specification, ``XDG_STATE_HOME``.
    """
    base = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", _URL.sub(r"\g<rest>", url)).strip("-.")
    return base / "sojourn" / (name or "lake")
