"""Asking the alert process that works on a lake: what alerts say, and to approve, revoke, pause, acknowledge."""

from __future__ import annotations

import getpass
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from lake.errors import SojournError, UserError

TIMEOUT_SECONDS = 10.0
#: For how long it is tried whether somebody answers at one of several addresses.
LOOK_SECONDS = 2.0
#: Bytes in which alerts may say what they do; of more than that nothing is read.
MOST_SAID = 4 * 1024 * 1024


def told_address(root: Path) -> str | None:
    """Where the alert process on the lake at ``root`` says that it listens."""
    try:
        return str(json.loads((root / "state" / "run" / "alerts.json").read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def addresses(root: Path, configured: str | None) -> tuple[str, ...]:
    """Where the alert process on the lake at ``root`` may be asked: as it tells itself, which holds on its own machine
    and in its own container, and where its settings say that others reach it."""
    return tuple(dict.fromkeys(one for one in (told_address(root), configured) if one))


def found(bases: tuple[str, ...], timeout: float) -> tuple[str, bool | None]:
    """The first of some ``bases`` at which an alert process answers within ``timeout`` seconds, and whether it is
    ready; the first of all, and None, where none does."""
    for base in bases:
        if (ready := is_ready(base, timeout)) is not None:
            return base, ready
    return bases[0], None


def own_name() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"


def action(action_id: str, what: str, by: str) -> str:
    """The path by which ``by`` has the action ``action_id`` approved or revoked."""
    return f"/v1/actions/{quote(action_id, safe='')}/{what}?by={quote(by, safe='')}"


def switch(what: str, by: str) -> str:
    """The path by which ``by`` has all policies pause or resume."""
    return f"/v1/{what}?by={quote(by, safe='')}"


def ask(
    base: str,
    path: str,
    *,
    token: str | None = None,
    method: str = "POST",
    body: Mapping[str, object] | None = None,
    hint: str = "see `sojourn actions list`",
) -> None:
    """A request for ``path`` at ``base``, with ``body`` as JSON.

    Raises:
        UserError: It was refused, with what the answer says and ``hint``.
        SojournError: Nobody answers.
    """
    data = None if body is None else json.dumps(body).encode()
    request = _request(base, path, token, data, method)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            response.read()
    except urllib.error.HTTPError as error:
        raise UserError(f"{base} refuses ({error.code}): {_detail(error)}", hint) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        told = f"no alert process answers at {base}: {reason} – start one by `sojourn alert`, or correct its address"
        raise SojournError(told) from error


def is_ready(base: str, timeout: float) -> bool | None:
    """Whether the alert process at ``base`` evaluates its rules in time; None where nobody answers within ``timeout``
    seconds. Changes nothing."""
    try:
        with urllib.request.urlopen(f"{base.rstrip('/')}/-/ready", timeout=timeout):
            return True
    except urllib.error.HTTPError:
        return False
    except (OSError, ValueError):
        return None


def said_now(bases: tuple[str, ...], token: str | None, timeout: float = LOOK_SECONDS) -> dict[str, dict[str, str]]:
    """By fingerprint the annotations that each alert which fires has by now, its ``value`` and ``threshold`` among
    them, from the first of ``bases`` that tells; empty where none does within ``timeout`` seconds. Changes nothing."""
    for base in bases:
        try:
            with urllib.request.urlopen(_request(base, "/api/v2/alerts", token), timeout=timeout) as response:
                return {one["fingerprint"]: one["annotations"] for one in json.loads(response.read(MOST_SAID))}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


def _request(
    base: str, path: str, token: str | None, data: bytes | None = None, method: str = "GET"
) -> urllib.request.Request:
    request = urllib.request.Request(base.rstrip("/") + path, data, method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    return request


def _detail(error: urllib.error.HTTPError) -> str:
    text = error.read(2000).decode(errors="replace").strip()
    try:
        told = json.loads(text)
        return told if isinstance(told, str) else str(told["error"])
    except (ValueError, KeyError, TypeError):
        return text or error.reason
