"""Secrets by reference: settings say where one stands, never what it is."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator

from lake.errors import UserError


class Secret(BaseModel):
    """Where a secret stands: an environment variable or a file. The secret itself is never in the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _not_itself(cls, given: object) -> object:
        if isinstance(given, str):  # never said again
            raise ValueError(
                'a secret is never in the settings: say where it stands, { env = "NAME" } or { file = "path" }'
            )
        return given

    @model_validator(mode="after")
    def _one_place(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError('give either env = "NAME" or file = "path"')
        return self

    def read(self, what: str) -> str:
        """The secret; UserError, which names ``what`` and the place but never the value, if it is not there."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise UserError(
                    f"{what} is to come from the environment variable {self.env}, which is not set", "set it"
                )
            return value
        assert self.file is not None
        try:
            held = self.file.expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(f"{what} cannot be read from {self.file}: {error.strerror}", "fix the path") from None
        except UnicodeDecodeError:
            raise UserError(f"{what} in {self.file} is no text in UTF-8", "fix the file") from None
        if not held:
            raise UserError(f"{what} is to come from {self.file}, which is empty", "write it there")
        return held


def bears(given: Sequence[str | bytes], token: str) -> bool:
    """Whether the ``Authorization`` headers ``given`` are one, and that is ``Bearer`` with ``token`` (RFC 6750, 2.1).

    Several are refused whatever they say: who stands in between might have looked at another of them. It takes as long
    for a wrong token as for the right one.
    """
    one = given[0] if len(given) == 1 else b""
    # Servers hand headers over as latin-1 (RFC 9110, 5.5), gRPC's clients may send what is not.
    sent = one if isinstance(one, bytes) else one.encode("latin-1", "replace")
    return is_secret(sent, f"Bearer {token}")


def is_secret(sent: bytes, secret: str) -> bool:
    """Whether ``sent`` is ``secret``; it takes as long for a wrong one as for the right one."""
    return hmac.compare_digest(sent, secret.encode())
