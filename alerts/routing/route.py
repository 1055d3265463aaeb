"""One way that alerts go: which take it, whom it tells, and how it gathers them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from alerts.routing.matchers import Matchers, all_match
from alerts.routing.times import TimeInterval

Times = tuple[tuple[str, tuple[TimeInterval, ...]], ...]


@dataclass(frozen=True, slots=True)
class Route:
    """A way with everything that it inherits. ``receivers`` None = all; ``key`` is Alertmanager's name of it."""

    key: str
    matchers: Matchers
    receivers: frozenset[str] | None
    group_by: tuple[str, ...]
    group_wait: timedelta
    group_interval: timedelta
    repeat_interval: timedelta
    mute_times: Times = ()
    active_times: Times = ()
    further: bool = False
    children: tuple[Route, ...] = ()

    @property
    def all(self) -> Iterator[Route]:
        """It, and all within it."""
        yield self
        for child in self.children:
            yield from child.all

    def tells(self, receiver: str) -> bool:
        """Whether it leads to ``receiver``."""
        return self.receivers is None or receiver in self.receivers

    def group_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Those of an alert's labels that name its group."""
        return {name: labels[name] for name in self.group_by if name in labels}

    def group_key(self, labels: Mapping[str, str]) -> str:
        """Alertmanager's name of the group with these labels: ``{}:{alertname="…", queue="…"}``."""
        return f"{self.key}:{{{_joined(labels)}}}"

    def muted(self, at: datetime) -> str | None:
        """Why nobody is told at ``at``, an instant of the wall clock; None if they are."""
        for name, intervals in self.mute_times:
            if any(interval.contains(at) for interval in intervals):
                return f"within the mute times {name}"
        if self.active_times and not any(one.contains(at) for _, spans in self.active_times for one in spans):
            return f"outside the active times {', '.join(name for name, _ in self.active_times)}"
        return None


def taken(routes: Sequence[Route], labels: Mapping[str, str]) -> list[Route]:
    """The ways that an alert with ``labels`` takes, of ``routes`` of which the last holds all others.

    Of the ways within one it takes the first that it meets, and on from those that say so; or else that one itself.
    Source: prometheus/alertmanager ``dispatch/route.go``.
    """
    return _taken(routes[-1], labels)


def _taken(outer: Route, labels: Mapping[str, str]) -> list[Route]:
    found: list[Route] = []
    for route in outer.children:
        if all_match(route.matchers, labels):
            found += _taken(route, labels)
            if not route.further:
                break
    return found or [outer]


def _joined(labels: Mapping[str, str]) -> str:
    return ", ".join([f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())])


def _escaped(value: str) -> str:
    if value.isalnum():  # as most are, and there are many
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
