"""What operators have the alert process do, for :func:`dashboard.writes.write` to carry out: each takes their name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from dashboard.run import API_VARIABLE
from lake import alert_api
from lake.errors import UserError

Operation = Callable[[str], object]


def action(root: Path, action_id: str, what: str) -> Operation:
    """Have an action on the lake at ``root`` approved or revoked: ``what`` is ``approve`` or ``revoke``."""
    return lambda name: _ask(root, alert_api.action(action_id, what, name))


def switch(root: Path, what: str) -> Operation:
    """Have all policies ``pause`` or ``resume``."""
    return lambda name: _ask(root, alert_api.switch(what, name))


def acknowledge(root: Path, fingerprint: str) -> Operation:
    """Say that whoever asks looks after the alert."""
    about = {"fingerprint": fingerprint, "comment": "on the dashboard"}
    return lambda name: _ask(root, "/api/v2/acknowledgements", {**about, "createdBy": name})


def silence(root: Path, labels: Mapping[str, str], now: datetime, lasts: timedelta) -> Operation:
    """Have nobody told, for so long, of alerts that have exactly these ``labels``; the alert fires on."""
    matchers = [{"name": name, "value": text, "isRegex": False, "isEqual": True} for name, text in labels.items()]
    span = {"startsAt": now.isoformat(), "endsAt": (now + lasts).isoformat(), "comment": "on the dashboard"}
    return lambda name: _ask(root, "/api/v2/silences", {"matchers": matchers, **span, "createdBy": name})


def known_api(root: Path) -> tuple[tuple[str, ...], str | None]:
    """Where the alert process on the lake at ``root`` may be asked, and the token for it."""
    known = json.loads(os.environ.get(API_VARIABLE) or "{}")
    token = os.environ.get(known["token_env"]) if "token_env" in known else None
    return alert_api.addresses(root, known.get("url")), token


def _ask(root: Path, path: str, body: Mapping[str, object] | None = None) -> None:
    bases, token = known_api(root)
    if not bases:
        raise UserError("no alert process has told where it listens", "is `sojourn alert` running on this lake?")
    base, _ = alert_api.found(bases, alert_api.LOOK_SECONDS)
    alert_api.ask(base, path, token=token, body=body, hint="this page shows what is there now")
