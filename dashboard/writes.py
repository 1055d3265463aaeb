"""The one way from a page to anything that lasts: who may not is refused here, on the server, and all is journalled.

A line is written before something is done, and another with what came of it; where the first cannot be written, nothing
is done. The journal is a file of JSON lines beside the lake's state, kept to two files of about a megabyte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from dashboard.people import Person, present
from dashboard.services.actions import Change
from lake.errors import SojournError, UserError
from lake.files import private, private_folder
from lake.visible import visible

FOLDER = Path("state") / "dashboard"
JOURNAL, BEFORE = "journal.jsonl", "journal.1.jsonl"
MOST_BYTES = 1024 * 1024
_LONGEST = 300
_LOCK = Lock()


def write(root: Path, what: str, about: str, act: Callable[[str], object]) -> None:
    """Have ``act`` carry out ``what``, for whoever looks at the page and under their name.

    Args:
        root: The lake's folder.
        what: What is done, ``approve`` say.
        about: To what, an action's id say.
        act: Does it, given the name of who asked for it.

    Raises:
        UserError: Who looks may not write, or it cannot be journalled.
        SojournError: What ``act`` raises.
    """
    who = present()
    if who is None or not who.may_write:
        _note(root, who, what, about, "refused")
        raise UserError("viewers read, and change nothing", "ask an operator: [dashboard] operators says who they are")
    _note(root, who, what, about, "asked")
    try:
        act(who.name)
    except SojournError as error:
        _note(root, who, what, about, "failed", str(error))
        raise
    _note(root, who, what, about, "done")


def changes(root: Path, most: int) -> list[Change]:
    """The newest ``most`` lines of the journal, the newest first; a line that is none is left out."""
    found: list[Change] = []
    for name in (JOURNAL, BEFORE):
        try:
            lines = (root / FOLDER / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in reversed(lines):
            if len(found) == most:
                return found
            try:
                found.append(Change(**json.loads(line)))
            except (ValueError, TypeError):
                continue
    return found


def _note(root: Path, who: Person | None, what: str, about: str, outcome: str, why: str = "") -> None:
    name, role = ("nobody known", "none") if who is None else (who.name, who.role.value)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    change = Change(at, name, role, what, visible(about, _LONGEST), outcome, visible(why, _LONGEST))
    folder = root / FOLDER
    try:
        with _LOCK:
            private_folder(folder.parent)
            private_folder(folder)
            journal = folder / JOURNAL
            if journal.exists() and journal.stat().st_size > MOST_BYTES:
                journal.replace(folder / BEFORE)
            line = json.dumps(asdict(change), ensure_ascii=False) + "\n"
            with open(journal, "a", encoding="utf-8", opener=private) as file:
                file.write(line)
    except OSError as error:
        raise UserError(
            f"what people do cannot be journalled in {folder}: {error.strerror}", "let this user write there"
        ) from error
