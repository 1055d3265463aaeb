"""What goes wrong on brokers in production: how it is made on a real server, and what each face must say of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: The broker's name in every record, and how old what waits for long is: far older than any test takes.
BROKER, OLD_SECONDS = "prod", 1200


@dataclass(frozen=True)
class Fault:
    """One trouble of one queue; ``make`` returns what keeps it going, called again and again."""

    name: str
    words: str
    make: Callable[[Any], Callable[[], None]]
    queue: str
    seen: Callable[[Row], bool]  # true of each of the queue's rows in queue_health_now, once it is seen
    columns: tuple[str, ...]
    says: Row  # what one row of these columns holds
    rules: frozenset[str] = frozenset()
    metrics: tuple[str, ...] = ()  # what lines of the metrics page begin with
    absent: tuple[str, ...] = ()
    page: tuple[str, ...] = ()
    samples: str = ""  # what else is asked of SQL, and words of the answer
    told: tuple[str, ...] = ()
    strikes: Callable[[Any], None] | None = None  # what happens once the queue has been sampled


@dataclass(frozen=True, eq=False)
class Scene:
    """One server, with all that goes wrong there; ``settings`` are ``[collect]``'s; ``events``: there are some."""

    name: str
    server: Callable[[Path], AbstractContextManager[Any]]
    settings: Callable[[Any], Row]
    faults: tuple[Fault, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    events: bool = False


def nothing() -> None:
    """The trouble lasts by itself."""


def long_ago() -> int:
    """When what is old was sent: milliseconds since 1970."""
    return round((time.time() - OLD_SECONDS) * 1000)


@contextmanager
def started(server: Any) -> Iterator[Any]:
    """``server``, while it runs."""
    with server:
        yield server
