"""Cheap questions to a child: is it ready?"""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable

from lake.errors import UserError


def http_ok(url: str, timeout: float = 0.5) -> Callable[[], bool]:
    """Whether a GET of ``url`` answers 2xx."""

    def probe() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                return bool(200 <= response.status < 300)
        except (OSError, ValueError):
            return False

    return probe


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int, key: str) -> None:
    """UserError, naming the setting ``key``, if something listens on ``port`` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(
                f"{host}:{port} cannot be used ({error.strerror})", f"set {key} to another port, or end what uses it"
            ) from error
