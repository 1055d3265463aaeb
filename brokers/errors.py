"""How a broker fails us."""

from __future__ import annotations

from lake.errors import SojournError, UserError


class ConnectionLost(SojournError):
    """The broker does not answer now; whoever asked may try again after a pause."""


class CredentialsRefused(UserError):
    """The broker answers, but not to us."""
