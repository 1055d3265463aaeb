"""Queues by which frameworks talk to themselves: nobody's messages wait in them."""

from __future__ import annotations

import re

#: Celery's remote control, the replies to it, and its events, as queues and as exchanges (kombu's pidbox, celeryev).
_CELERY = re.compile(r"(.+\.)?pidbox|celeryev(\..*)?")


def is_plumbing(name: str) -> bool:
    """Whether the queue or exchange ``name`` is one of a framework's own."""
    return _CELERY.fullmatch(name) is not None
