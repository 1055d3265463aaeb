"""Tenants that count as one: declared by a pattern of their names, or seen to begin together.

A customer under forty names would have forty shares. Who begins to send within the same moments as many others, where
that is far from chance, is taken for one of a group (a *sybil*: J. Douceur, "The Sybil Attack", IPTPS 2002). A group
is a unit to fairness: it gets one share, which its members share.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Until it has looked for so long, nobody is called new: at the start all are (seconds).
LEARN_SECONDS = 15.0
#: Who begins within so many seconds of others begins together with them; as many as this, at least, are a group.
TOGETHER_SECONDS, LEAST_MEMBERS = 2.0, 8
#: More than what comes by chance, by so many standard deviations of a Poisson count.
DEVIATIONS = 4.0
#: How long the rate at which tenants usually begin is remembered, and who was silent for so long begins anew (seconds).
USUAL_SECONDS, FORGET_SECONDS = 300.0, 600.0
#: A group of which nobody has sent for so long is none any more (seconds).
SILENT_SECONDS = 30.0
#: Names that are remembered; the longest silent are forgotten first.
MOST_REMEMBERED = 100_000


def is_pattern(name: str) -> bool:
    """Whether ``name`` is a group's: the beginning of its members' names and a ``*``."""
    return len(name) >= 2 and name.endswith("*") and "*" not in name[:-1]


class Patterns:
    """Groups that were declared: ``acme-*`` is everybody whose name begins so; the longest that fits counts.

    Raises ValueError for a pattern that is not a beginning of at least one character and a ``*``.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = sorted(set(patterns), key=len, reverse=True)
        for pattern in self._patterns:
            if not is_pattern(pattern):
                raise ValueError(f"group {pattern!r} must be the beginning of names and a *, as acme-*")

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def of(self, tenant: str) -> str | None:
        """The pattern that ``tenant`` belongs to."""
        return next((pattern for pattern in self._patterns if tenant.startswith(pattern[:-1])), None)


@dataclass(slots=True)
class _Group:
    name: str
    last_joined: float
    last_sent: float


class Onsets:
    """Who begins together with many others. Pure: instants (seconds, growing) are given."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._last: dict[str, float] = {}  # who sent, and when last: the longest silent first
        self._new: deque[tuple[float, str]] = deque()  # who began within the last moments
        self._usual = 0.0  # how many begin a second, over a long while
        self._usual_at = 0.0
        self._groups: dict[str, _Group] = {}  # by member

    def came(self, tenant: str, now: float) -> None:
        """``tenant`` sent something at ``now``."""
        if self._began is None:
            self._began = self._usual_at = now
        group = self._groups.get(tenant)
        if group is not None:
            group.last_sent = now
        before = self._last.pop(tenant, None)
        self._last[tenant] = now
        if len(self._last) > MOST_REMEMBERED:
            del self._last[next(iter(self._last))]
        if before is not None and now - before < FORGET_SECONDS:
            return
        if now - self._began < LEARN_SECONDS:
            return
        self._began_to_send(tenant, now)

    def of(self, tenant: str, now: float) -> str | None:
        """The group that ``tenant`` is of at ``now``."""
        group = self._groups.get(tenant)
        if group is None:
            return None
        if now - group.last_sent > SILENT_SECONDS:
            del self._groups[tenant]
            return None
        return group.name

    def members(self, now: float) -> dict[str, str]:
        """Who is in a group at ``now``, and in which."""
        return {name: group.name for name, group in list(self._groups.items()) if self.of(name, now) is not None}

    def grows(self, now: float) -> bool:
        """Whether a group has gained a member in the last moments: a stranger may be the next."""
        return any(now - group.last_joined <= TOGETHER_SECONDS for group in self._groups.values())

    def _began_to_send(self, tenant: str, now: float) -> None:
        while self._new and now - self._new[0][0] > TOGETHER_SECONDS:
            at, _ = self._new.popleft()
            self._usual = self._usual * math.exp(-(at - self._usual_at) / USUAL_SECONDS) + 1 / USUAL_SECONDS
            self._usual_at = at
        self._new.append((now, tenant))
        chance = self._usual * TOGETHER_SECONDS
        if len(self._new) < LEAST_MEMBERS or len(self._new) <= chance + DEVIATIONS * math.sqrt(chance):
            return
        members = [name for _, name in self._new]
        group = next((self._groups[name] for name in members if name in self._groups), None)
        if group is None:
            group = _Group(_named(members, now), now, now)
        group.last_joined = group.last_sent = now
        for name in members:
            self._groups.setdefault(name, group)


def common(members: Iterable[str]) -> str:
    """What all names begin with."""
    first, last = min(members := list(members)), max(members)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]


def _named(members: list[str], now: float) -> str:
    beginning = common(members)
    return f"{beginning}… (began together)" if len(beginning) >= 3 else f"began together at {now:.0f}"


def grouped(rates: Mapping[str, float], units: Mapping[str, str]) -> dict[str, float]:
    """``rates`` by unit: members of a group (``units``, by tenant) together."""
    found: dict[str, float] = {}
    for name, rate in rates.items():
        unit = units.get(name, name)
        found[unit] = found.get(unit, 0.0) + rate
    return found
