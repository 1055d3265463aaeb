"""A lake that holds events or samples of which nobody has finished the state: its metrics are unknown, not zero."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lake.errors import UserError
from lake.finished import QUEUE_STATE
from lake.schema import TableSpec
from lake.snapshot import Snapshot
from lake.tables import PARTIALS, QUEUE_SAMPLES
from lake.views import below
from lake.views.catalogue import HISTORY, NEWEST

#: What is said of such a lake, and what to do.
UNFINISHED = "nothing has finished this lake's state yet"
REMEDY = "run `sojourn analyze --once`, or wait a moment where `sojourn up` has just begun"


def is_unfinished(root: Path) -> bool:
    """Whether the lake at ``root`` has something to tell, and nothing of it is told by finished state.

    Costs a look at the logs of up to three tables. Raises LakeError.
    """
    return not _has_rows(QUEUE_STATE, root) and (_has_rows(PARTIALS, root) or _has_rows(QUEUE_SAMPLES, root))


def require_finished(root: Path, names: Iterable[str]) -> None:
    """Raises UserError where any of the views ``names`` rests on finished state and the lake at ``root`` has none."""
    if rests_on_state(names) and is_unfinished(root):
        raise UserError(UNFINISHED, REMEDY)


def rests_on_state(names: Iterable[str]) -> bool:
    """Whether any of the tables and views ``names`` is told by finished state alone."""
    return not {*NEWEST, *HISTORY}.isdisjoint(below(names)[1])


def _has_rows(spec: TableSpec, root: Path) -> bool:
    snapshot = Snapshot(spec, root)
    return snapshot.version() >= 0 and bool(snapshot.files())
