"""Statements that viewers keep for one another, in a small file beside the lake's state."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock

from pydantic import TypeAdapter, ValidationError

from lake.errors import UserError
from lake.files import private_folder, write_atomically
from lake.visible import visible

#: How many are kept, and how long one and its name may be (characters).
MOST, LONGEST, LONGEST_NAME = 100, 8_000, 80
_FILE = Path("state") / "dashboard" / "statements.json"
_STATEMENTS = TypeAdapter(dict[str, str])
_LOCK = Lock()

#: What anybody may begin with.
EXAMPLES = {
    "Who waits longest": "SELECT queue, tenant, backlog, oldest_age_seconds\nFROM tenant_backlog_now\n"
    "ORDER BY oldest_age_seconds DESC\nLIMIT 20",
    "p99 of first attempts by queue, last hour": "SELECT broker, queue,\n"
    "  histogram_quantile(histogram_merge(histogram), 0.99) AS p99_seconds\nFROM attempt_age\n"
    "WHERE kind = 'first_attempt' AND bucket_start > now() - INTERVAL 1 HOUR\nGROUP BY broker, queue",
    "Consumers without headroom": "SELECT broker, queue, subscriber, empty_poll_ratio, in_flight, in_flight_limit\n"
    "FROM queue_health_now\nWHERE empty_poll_ratio < 0.01 OR in_flight > 0.8 * in_flight_limit",
    "What policies decided today": "SELECT at, policy, queue, tenant, decision, before, after, reason\nFROM actions\n"
    "WHERE at > now() - INTERVAL 1 DAY\nORDER BY at DESC\nLIMIT 100",
}


def load(root: Path) -> dict[str, str]:
    """The statements that viewers of the lake at ``root`` kept, by name; none where they cannot be read."""
    try:
        return _STATEMENTS.validate_json((root / _FILE).read_bytes())
    except (OSError, ValidationError):
        return {}


def save(root: Path, name: str, sql: str) -> None:
    """Keep ``sql`` as ``name``, in the place of another of that name. UserError where that cannot be."""
    name = visible(" ".join(name.split()))
    if not name or len(name) > LONGEST_NAME or len(sql) > LONGEST:
        raise UserError(
            f"a kept statement has a name of up to {LONGEST_NAME} characters, and {LONGEST:,} itself", "shorten it"
        )
    if name in EXAMPLES:
        raise UserError(f"{name} is the name of an example", "choose another")
    with _LOCK:
        kept = {**load(root), name: sql}
        if len(kept) > MOST:
            raise UserError(f"{MOST} statements are kept already", "forget one of them")
        _write(root, kept)


def forget(root: Path, name: str) -> None:
    """Keep the statement called ``name`` no longer."""
    with _LOCK:
        _write(root, {other: sql for other, sql in load(root).items() if other != name})


def _write(root: Path, kept: dict[str, str]) -> None:
    path = root / _FILE
    try:
        private_folder(path.parent.parent)
        private_folder(path.parent)
        write_atomically(path, json.dumps(kept, ensure_ascii=False, indent=1))
    except OSError as error:
        raise UserError(
            f"statements cannot be kept in {path.parent}: {error.strerror}", "let this user write there"
        ) from error
