"""Queues by which frameworks talk to themselves: nobody's messages wait in them."""

from __future__ import annotations

import re

#: Celery's remote control, the replies to it, its events, as queues and as exchanges (kombu's pidbox, celeryev), and
#: results that wait for who called (``rpc://``): a queue named by kombu's id of a process, a UUID made from names.
_CELERY = re.compile(r"(.+\.)?pidbox|celeryev(\..*)?|[0-9a-f]{8}-[0-9a-f]{4}-[35][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_plumbing(name: str) -> bool:
    """Whether the queue or exchange ``name`` is one of a framework's own."""
    return _CELERY.fullmatch(name) is not None
